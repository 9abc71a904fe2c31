//! ascent: rules as a macro, compiled with the program.

use crate::{DOMAIN, Pair, Program, RANGE, SUB_CLASS, SUB_PROPERTY, TYPE, Triple, pairs};
use ascent::ascent;

ascent! {
    struct Linear;
    relation arc(u32, u32);
    relation tc(u32, u32);
    tc(x, y) <-- arc(x, y);
    tc(x, z) <-- tc(x, y), arc(y, z);
}

ascent! {
    struct NonLinear;
    relation arc(u32, u32);
    relation tc(u32, u32);
    tc(x, y) <-- arc(x, y);
    tc(x, z) <-- tc(x, y), tc(y, z);
}

ascent! {
    struct Generation;
    relation arc(u32, u32);
    relation sg(u32, u32);
    sg(x, y) <-- arc(p, x), arc(p, y);
    sg(x, y) <-- arc(a, x), sg(a, b), arc(b, y);
}

ascent! {
    struct Rdfs;
    relation t(u32, u32, u32);
    t(y, TYPE, x) <-- t(a, { DOMAIN }, x), t(y, a, z);
    t(z, TYPE, x) <-- t(a, { RANGE }, x), t(y, a, z);
    t(x, SUB_PROPERTY, z) <-- t(x, { SUB_PROPERTY }, y), t(y, { SUB_PROPERTY }, z);
    t(x, SUB_CLASS, z) <-- t(x, { SUB_CLASS }, y), t(y, { SUB_CLASS }, z);
    t(z, TYPE, y) <-- t(x, { SUB_CLASS }, y), t(z, { TYPE }, x);
    t(x, b, y) <-- t(a, { SUB_PROPERTY }, b), t(x, a, y);
}

#[allow(non_snake_case)]
mod analysis {
    use ascent::ascent;
    include!(concat!(env!("OUT_DIR"), "/analysis.rs"));

    /// The rules of ../../analysis.dl over facts that `rows` has by relation; `build.rs` made `load` and `tuples`.
    pub fn run(rows: impl FnMut(&str) -> Vec<Vec<u32>>) -> (f64, usize) {
        let mut work = Analysis::default();
        load(&mut work, rows);
        let start = std::time::Instant::now();
        work.run();
        (start.elapsed().as_secs_f64(), tuples(&work))
    }
}

pub use analysis::run as analyse;

pub fn run(program: Program, rows: &[Triple]) -> usize {
    let arc: Vec<Pair> = pairs(rows);
    match program {
        Program::Linear => {
            let mut work = Linear { arc, ..Default::default() };
            work.run();
            work.tc.len()
        }
        Program::NonLinear => {
            let mut work = NonLinear { arc, ..Default::default() };
            work.run();
            work.tc.len()
        }
        Program::Generation => {
            let mut work = Generation { arc, ..Default::default() };
            work.run();
            work.sg.len()
        }
        Program::Rdfs => {
            let mut work = Rdfs { t: rows.to_vec(), ..Default::default() };
            work.run();
            work.t.len()
        }
    }
}
