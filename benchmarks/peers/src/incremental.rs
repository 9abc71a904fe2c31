//! differential dataflow: the only one of the peers that keeps its result up to date.

use crate::{DOMAIN, Program, RANGE, SUB_CLASS, SUB_PROPERTY, TYPE, Triple};
use differential_dataflow::VecCollection;
use differential_dataflow::input::{Input, InputSession};
use differential_dataflow::lattice::Lattice;
use differential_dataflow::operators::Iterate;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Instant;
use timely::dataflow::operators::probe::Handle;
use timely::progress::Timestamp;

type Facts<'a, T> = VecCollection<'a, T, Triple, isize>;
type Pairs<'a, T> = VecCollection<'a, T, (u32, u32), isize>;

pub fn run(program: Program, rows: Vec<Triple>, changes: usize, share: usize) {
    timely::execute_directly(move |worker| {
        let mut probe = Handle::new();
        let tuples = Rc::new(Cell::new(0_isize));
        let counted = tuples.clone();
        let start = Instant::now();
        let mut input: InputSession<u32, Triple, isize> = worker.dataflow(|scope| {
            let (input, facts) = scope.new_collection();
            let result = match program {
                Program::Rdfs => rdfs(facts),
                _ => pairs(program, facts.map(|(x, y, _)| (x, y))).map(|(x, y)| (x, y, 0)),
            };
            result.inspect(move |(_, _, weight)| counted.set(counted.get() + weight)).probe_with(&mut probe);
            input
        });
        let mut epoch = 0;
        let mut step = |part: &[Triple], weight: isize| {
            let start = Instant::now();
            for &row in part {
                input.update(row, weight);
            }
            epoch += 1;
            input.advance_to(epoch);
            input.flush();
            worker.step_while(|| probe.less_than(input.time()));
            start.elapsed().as_secs_f64()
        };
        step(&rows, 1);
        let seconds = start.elapsed().as_secs_f64();
        let all = tuples.get();
        let mut singles = (vec![], vec![]);
        let mut parts = (vec![], vec![]);
        let mut chosen = Chooser(7);
        for _ in 0..changes {
            let row = [rows[chosen.below(rows.len())]];
            singles.0.push(step(&row, -1));
            singles.1.push(step(&row, 1));
        }
        for _ in 0..share {
            let part: Vec<Triple> =
                chosen.distinct(rows.len() / 100, rows.len()).into_iter().map(|i| rows[i]).collect();
            parts.0.push(step(&part, -1));
            parts.1.push(step(&part, 1));
        }
        assert_eq!(all, tuples.get(), "what was given back restores the result");
        if changes + share == 0 {
            return crate::report(seconds, all as usize);
        }
        println!(
            "{{\"bootstrap\": [{seconds}], \"tuples\": {all}, \"away\": {:?}, \"back\": {:?}, \"part_away\": {:?}, \
             \"part_back\": {:?}}}",
            singles.0, singles.1, parts.0, parts.1
        );
    });
}

fn pairs<T: Timestamp + Lattice + Ord>(program: Program, arc: Pairs<'_, T>) -> Pairs<'_, T> {
    match program {
        Program::Linear => arc.clone().iterate(|scope, tc| {
            let arc = arc.enter(scope);
            tc.map(|(x, y)| (y, x)).join_map(arc.clone(), |_y, &x, &z| (x, z)).concat(arc).distinct()
        }),
        Program::NonLinear => arc.clone().iterate(|scope, tc| {
            let arc = arc.enter(scope);
            tc.clone().map(|(x, y)| (y, x)).join_map(tc, |_y, &x, &z| (x, z)).concat(arc).distinct()
        }),
        _ => {
            let siblings = arc.clone().join_map(arc.clone(), |_p, &x, &y| (x, y)).distinct();
            siblings.clone().iterate(|scope, sg| {
                let arc = arc.enter(scope).arrange_by_key();
                let siblings = siblings.enter(scope);
                sg.arrange_by_key()
                    .join_core(arc.clone(), |_a, &b, &x| Some((b, x)))
                    .arrange_by_key()
                    .join_core(arc, |_b, &x, &y| Some((x, y)))
                    .concat(siblings)
                    .distinct()
            })
        }
    }
}

fn rdfs<T: Timestamp + Lattice + Ord>(facts: Facts<'_, T>) -> Facts<'_, T> {
    facts.clone().iterate(|scope, t| {
        let facts = facts.enter(scope);
        let word = |wanted| t.clone().flat_map(move |(s, p, o)| (p == wanted).then_some((s, o)));
        let reversed = |wanted| t.clone().flat_map(move |(s, p, o)| (p == wanted).then_some((o, s)));
        let triples = t.clone().map(|(s, p, o)| (p, (s, o))).arrange_by_key();
        let property = word(SUB_PROPERTY).arrange_by_key();
        let class = word(SUB_CLASS).arrange_by_key();
        let domains = word(DOMAIN).arrange_by_key().join_core(triples.clone(), |_a, &x, &(y, _z)| Some((y, TYPE, x)));
        let ranges = word(RANGE).arrange_by_key().join_core(triples.clone(), |_a, &x, &(_y, z)| Some((z, TYPE, x)));
        let properties = reversed(SUB_PROPERTY)
            .arrange_by_key()
            .join_core(property.clone(), |_y, &x, &z| Some((x, SUB_PROPERTY, z)));
        let classes =
            reversed(SUB_CLASS).arrange_by_key().join_core(class.clone(), |_y, &x, &z| Some((x, SUB_CLASS, z)));
        let types = reversed(TYPE).arrange_by_key().join_core(class, |_x, &z, &y| Some((z, TYPE, y)));
        let inherited = triples.join_core(property, |_a, &(x, y), &b| Some((x, b, y)));
        facts.concatenate([domains, ranges, properties, classes, types, inherited]).distinct()
    })
}

/// Numbers that look random and are the same in every run (a linear congruential generator, Knuth's MMIX).
struct Chooser(u64);

impl Chooser {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) as usize) % limit
    }

    fn distinct(&mut self, wanted: usize, limit: usize) -> Vec<usize> {
        let mut found = std::collections::BTreeSet::new();
        while found.len() < wanted {
            found.insert(self.below(limit));
        }
        found.into_iter().collect()
    }
}
