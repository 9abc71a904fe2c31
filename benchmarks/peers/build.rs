//! Turns ../analysis.dl into ascent's notation, and says how its facts are read.

use std::collections::BTreeMap;
use std::fmt::Write;

/// Of the relations' names, because `move` and others are words of Rust.
const PREFIX: &str = "r_";

fn main() {
    println!("cargo:rerun-if-changed=../analysis.dl");
    let text = std::fs::read_to_string("../analysis.dl").expect("the rules are beside this folder");
    let code: String = text.lines().filter(|line| !line.starts_with("//")).collect::<Vec<_>>().join(" ");
    let clauses: Vec<&str> =
        code.split(". ").map(|c| c.trim().trim_end_matches('.')).filter(|c| !c.is_empty()).collect();
    let mut columns = BTreeMap::new();
    let mut derived = std::collections::BTreeSet::new();
    let mut rules = String::new();
    for clause in clauses {
        let (head, body) = clause.split_once(":-").expect("a rule");
        derived.insert(name(head).to_string());
        let mut literals = vec![];
        for literal in parts(body) {
            let atom = literal.trim_start_matches('!');
            let negation = &literal[..literal.len() - atom.len()];
            if atom.contains('(') {
                columns.insert(name(atom).to_string(), atom.split(',').count());
                literals.push(format!("{negation}{PREFIX}{atom}"));
            } else {
                literals.push(format!("if {literal}"));
            }
        }
        columns.insert(name(head).to_string(), head.split(',').count());
        writeln!(rules, "    {PREFIX}{} <-- {};", head.trim(), literals.join(", ")).unwrap();
    }
    let mut out = String::from("ascent! {\n    struct Analysis;\n");
    for (name, n) in &columns {
        writeln!(out, "    relation {PREFIX}{name}({});", vec!["u32"; *n].join(", ")).unwrap();
    }
    writeln!(out, "{rules}}}\n\nfn load(work: &mut Analysis, mut rows: impl FnMut(&str) -> Vec<Vec<u32>>) {{").unwrap();
    for (name, n) in columns.iter().filter(|(name, _)| !derived.contains(*name)) {
        let cells: Vec<String> = (0..*n).map(|i| format!("row[{i}]")).collect();
        writeln!(
            out,
            "    work.{PREFIX}{name} = rows({name:?}).into_iter().map(|row| ({},)).collect();",
            cells.join(", ")
        )
        .unwrap();
    }
    writeln!(out, "}}\n\nfn tuples(work: &Analysis) -> usize {{\n    0").unwrap();
    for name in columns.keys() {
        writeln!(out, "        + work.{PREFIX}{name}.len()").unwrap();
    }
    out.push_str("}\n");
    let folder = std::env::var("OUT_DIR").unwrap();
    std::fs::write(format!("{folder}/analysis.rs"), out).unwrap();
}

fn name(atom: &str) -> &str {
    atom.split('(').next().unwrap().trim()
}

/// The literals of a body: what stands between the commas outside of parentheses.
fn parts(body: &str) -> Vec<&str> {
    let (mut found, mut depth, mut start) = (vec![], 0, 0);
    for (place, letter) in body.char_indices() {
        match letter {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                found.push(body[start..place].trim());
                start = place + 1;
            }
            _ => (),
        }
    }
    found.push(body[start..].trim());
    found
}
