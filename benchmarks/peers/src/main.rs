//! The programs of Zedlog's benchmarks in other engines, as their users would write them; one thread.
//!
//!     zedlog-peers PEER PROGRAM FOLDER [CHANGES PARTS]
//!
//! PEER: ascent, datafrog, differential. PROGRAM: linear, nonlinear, generation, rdfs, analysis (ascent only). FOLDER has
//! a file for each relation, a fact a line, whole numbers separated by white space. One line of JSON says how many tuples
//! the result has, and the seconds of the work ("bootstrap"): from facts in memory to the finished result, without
//! reading files. With CHANGES and PARTS (differential only) that many single facts are then taken away and given back
//! one by one, and that many times 1 % of all facts; "away", "back", "part_away" and "part_back" are the seconds of each.

mod batch_ascent;
mod batch_datafrog;
mod incremental;

use std::time::Instant;

pub type Pair = (u32, u32);
pub type Triple = (u32, u32, u32);

/// The words of RDFS in the triples: their codes are those of the file.
pub const SUB_CLASS: u32 = 0;
pub const SUB_PROPERTY: u32 = 1;
pub const DOMAIN: u32 = 2;
pub const RANGE: u32 = 3;
pub const TYPE: u32 = 4;

#[derive(Clone, Copy, PartialEq)]
pub enum Program {
    Linear,
    NonLinear,
    Generation,
    Rdfs,
}

const USAGE: &str = "usage: zedlog-peers PEER PROGRAM FOLDER [CHANGES PARTS]";

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [peer, program, folder, changes @ ..] = &arguments[..] else { fail(USAGE) };
    if program == "analysis" {
        if peer != "ascent" {
            fail("the analysis is written for ascent only")
        }
        let (seconds, tuples) = batch_ascent::analyse(|relation| read(&format!("{folder}/{relation}")));
        return report(seconds, tuples);
    }
    let (program, relation) = match program.as_str() {
        "linear" => (Program::Linear, "arc"),
        "nonlinear" => (Program::NonLinear, "arc"),
        "generation" => (Program::Generation, "arc"),
        "rdfs" => (Program::Rdfs, "t"),
        other => fail(&format!("there is no program {other}")),
    };
    let rows: Vec<Triple> = read(&format!("{folder}/{relation}"))
        .into_iter()
        .map(|row| (row[0], row[1], row.get(2).copied().unwrap_or(0)))
        .collect();
    match (peer.as_str(), changes) {
        ("ascent", []) => timed(|| batch_ascent::run(program, &rows)),
        ("datafrog", []) => timed(|| batch_datafrog::run(program, &rows)),
        ("differential", []) => incremental::run(program, rows, 0, 0),
        ("differential", [changes, parts]) => incremental::run(program, rows, number(changes), number(parts)),
        _ => fail(USAGE),
    }
}

fn timed(work: impl FnOnce() -> usize) {
    let start = Instant::now();
    let tuples = work();
    report(start.elapsed().as_secs_f64(), tuples);
}

pub fn report(seconds: f64, tuples: usize) {
    println!("{{\"bootstrap\": [{seconds}], \"tuples\": {tuples}}}");
}

fn read(file: &str) -> Vec<Vec<u32>> {
    let text = std::fs::read_to_string(file).unwrap_or_else(|error| fail(&format!("{file}: {error}")));
    text.lines().map(|line| line.split_whitespace().map(number::<u32>).collect()).collect()
}

fn number<N: std::str::FromStr>(word: &str) -> N {
    word.parse().unwrap_or_else(|_| fail(&format!("{word} is not a whole number")))
}

pub fn pairs(rows: &[Triple]) -> Vec<Pair> {
    rows.iter().map(|&(a, b, _)| (a, b)).collect()
}

fn fail(why: &str) -> ! {
    eprintln!("{why}");
    std::process::exit(2)
}
