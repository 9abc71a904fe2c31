//! datafrog: joins of sorted relations, written out by hand.

use crate::{DOMAIN, Program, RANGE, SUB_CLASS, SUB_PROPERTY, TYPE, Triple, pairs};
use datafrog::{Iteration, Relation};

pub fn run(program: Program, rows: &[Triple]) -> usize {
    match program {
        Program::Linear => linear(rows),
        Program::NonLinear => non_linear(rows),
        Program::Generation => generation(rows),
        Program::Rdfs => rdfs(rows),
    }
}

fn linear(rows: &[Triple]) -> usize {
    let mut iteration = Iteration::new();
    let arc: Relation<_> = pairs(rows).into();
    // tc(x, y) as (y, x).
    let tc = iteration.variable::<(u32, u32)>("tc");
    tc.extend(rows.iter().map(|&(x, y, _)| (y, x)));
    while iteration.changed() {
        tc.from_join(&tc, &arc, |_y, &x, &z| (z, x));
    }
    tc.complete().len()
}

fn non_linear(rows: &[Triple]) -> usize {
    let mut iteration = Iteration::new();
    let tc = iteration.variable::<(u32, u32)>("tc");
    let reversed = iteration.variable::<(u32, u32)>("tc by its second column");
    tc.extend(pairs(rows));
    while iteration.changed() {
        reversed.from_map(&tc, |&(x, y)| (y, x));
        tc.from_join(&reversed, &tc, |_y, &x, &z| (x, z));
    }
    tc.complete().len()
}

fn generation(rows: &[Triple]) -> usize {
    let mut iteration = Iteration::new();
    let arc: Relation<_> = pairs(rows).into();
    let sg = iteration.variable::<(u32, u32)>("sg");
    // The pairs (b, x) with arc(a, x), sg(a, b).
    let half = iteration.variable::<(u32, u32)>("half");
    sg.insert(Relation::from_join(&arc, &arc, |_p, &x, &y| (x, y)));
    while iteration.changed() {
        half.from_join(&sg, &arc, |_a, &b, &x| (b, x));
        sg.from_join(&half, &arc, |_b, &x, &y| (x, y));
    }
    sg.complete().len()
}

fn rdfs(rows: &[Triple]) -> usize {
    let mut iteration = Iteration::new();
    // The triple (s, p, o) as (p, (s, o)), and the triples of one word by their subject or their object.
    let t = iteration.variable::<(u32, (u32, u32))>("t");
    let domain = iteration.variable::<(u32, u32)>("domain");
    let range = iteration.variable::<(u32, u32)>("range");
    let property = iteration.variable::<(u32, u32)>("sub property");
    let property_of = iteration.variable::<(u32, u32)>("sub property by its object");
    let class = iteration.variable::<(u32, u32)>("sub class");
    let class_of = iteration.variable::<(u32, u32)>("sub class by its object");
    let kind = iteration.variable::<(u32, u32)>("type by its object");
    t.extend(rows.iter().map(|&(s, p, o)| (p, (s, o))));
    let word = |wanted: u32| move |&(p, (s, o)): &(u32, (u32, u32))| (p == wanted).then_some((s, o));
    let reversed = |wanted: u32| move |&(p, (s, o)): &(u32, (u32, u32))| (p == wanted).then_some((o, s));
    while iteration.changed() {
        pick(&t, &domain, word(DOMAIN));
        pick(&t, &range, word(RANGE));
        pick(&t, &property, word(SUB_PROPERTY));
        pick(&t, &property_of, reversed(SUB_PROPERTY));
        pick(&t, &class, word(SUB_CLASS));
        pick(&t, &class_of, reversed(SUB_CLASS));
        pick(&t, &kind, reversed(TYPE));
        t.from_join(&domain, &t, |_a, &x, &(y, _z)| (TYPE, (y, x)));
        t.from_join(&range, &t, |_a, &x, &(_y, z)| (TYPE, (z, x)));
        t.from_join(&property_of, &property, |_y, &x, &z| (SUB_PROPERTY, (x, z)));
        t.from_join(&class_of, &class, |_y, &x, &z| (SUB_CLASS, (x, z)));
        t.from_join(&class, &kind, |_x, &y, &z| (TYPE, (z, y)));
        t.from_join(&property, &t, |_a, &b, &(x, y)| (b, (x, y)));
    }
    t.complete().len()
}

/// The tuples that `choose` takes from what is new in `from`.
fn pick<T: Ord + Clone + 'static>(
    from: &datafrog::Variable<T>,
    to: &datafrog::Variable<(u32, u32)>,
    choose: impl Fn(&T) -> Option<(u32, u32)>,
) {
    to.extend(from.recent.borrow().iter().filter_map(choose));
}
