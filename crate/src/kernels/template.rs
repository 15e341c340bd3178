//! WGSL sources with constants put in at launch: `$NAME`, `//! if`, `//! each`.
//!
//! A `.wgsl` file stays readable as WGSL: the directives are comments, and a `$NAME` stands where a constant stands.
//!
//! | directive | meaning |
//! |---|---|
//! | `$NAME`, `${NAME}` | the value of `NAME`; a name without a value stays as it is, and no WGSL compiler accepts a `$` |
//! | `//! if NAME`, `//! else`, `//! end` | the lines between, when `NAME` has a value other than `false` |
//! | `//! each i COUNT`, `//! end` | the lines between, `COUNT` times, with `$i` = 0, 1, ... |
//!
//! Loops over private arrays are written with `each`: named variables stay in registers in every driver, arrays do not.

use std::fmt::Write as _;

/// Values of the names in a source. A later value of a name hides an earlier one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Template {
    values: Vec<(&'static str, String)>,
}

impl Template {
    /// No values yet.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Gives `name` a value.
    #[must_use]
    pub(crate) fn set(mut self, name: &'static str, value: impl ToString) -> Self {
        self.values.push((name, value.to_string()));
        self
    }

    /// The parts, one after another, with every directive carried out.
    pub(crate) fn expand(&self, parts: &[&str]) -> String {
        let mut out = String::new();
        for part in parts {
            let lines: Vec<&str> = part.lines().collect();
            self.block(&lines, &mut Vec::new(), &mut out);
        }
        out
    }

    fn block(&self, lines: &[&str], counters: &mut Vec<(String, u32)>, out: &mut String) {
        let mut at = 0;
        while let Some(line) = lines.get(at) {
            at += 1;
            let Some(words) = directive(line) else {
                self.line(line, counters, out);
                continue;
            };
            let (middle, end) = extent(lines, at);
            match words.as_slice() {
                ["if", name] => {
                    let inner = match (self.holds(name), middle) {
                        (true, Some(middle)) => &lines[at..middle],
                        (true, None) => &lines[at..end],
                        (false, Some(middle)) => &lines[middle + 1..end],
                        (false, None) => &[],
                    };
                    self.block(inner, counters, out);
                    at = end + 1;
                }
                ["each", counter, count] => {
                    let count = self.value(count, counters).unwrap_or_default();
                    for index in 0..count.parse::<u32>().unwrap_or_default() {
                        counters.push(((*counter).to_owned(), index));
                        self.block(&lines[at..end], counters, out);
                        counters.pop();
                    }
                    at = end + 1;
                }
                // Not a directive of ours: it stays, with its `//!`, and is a comment to WGSL.
                _ => self.line(line, counters, out),
            }
        }
    }

    fn holds(&self, name: &str) -> bool {
        self.value(name, &[]).is_some_and(|value| value != "false")
    }

    fn value(&self, name: &str, counters: &[(String, u32)]) -> Option<String> {
        if name.starts_with(|c: char| c.is_ascii_digit()) {
            return Some(name.to_owned());
        }
        let counter = counters.iter().rev().find(|(known, _)| known == name);
        if let Some((_, index)) = counter {
            return Some(index.to_string());
        }
        let known = self.values.iter().rev().find(|(known, _)| *known == name);
        known.map(|(_, value)| value.clone())
    }

    fn line(&self, line: &str, counters: &[(String, u32)], out: &mut String) {
        let mut rest = line;
        while let Some((before, after)) = rest.split_once('$') {
            out.push_str(before);
            let braced = after.strip_prefix('{').and_then(|s| s.split_once('}'));
            let (name, tail) = braced.unwrap_or_else(|| {
                let length = after
                    .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
                    .unwrap_or(after.len());
                after.split_at(length)
            });
            match self.value(name, counters) {
                Some(value) => out.push_str(&value),
                None => {
                    let _ = write!(out, "${name}");
                }
            }
            rest = tail;
        }
        out.push_str(rest);
        out.push('\n');
    }
}

/// The words after `//!`, when the line is a directive.
fn directive(line: &str) -> Option<Vec<&str>> {
    let words = line.trim_start().strip_prefix("//!")?;
    Some(words.split_whitespace().collect())
}

/// Positions of the `else`, if any, and the `end` that belong to the directive before `start`.
fn extent(lines: &[&str], start: usize) -> (Option<usize>, usize) {
    let (mut depth, mut middle) = (0, None);
    for (at, line) in lines.iter().enumerate().skip(start) {
        match directive(line).as_deref() {
            Some(["if", _] | ["each", _, _]) => depth += 1,
            Some(["else"]) if depth == 0 => middle = Some(at),
            Some(["end"]) if depth == 0 => return (middle, at),
            Some(["end"]) => depth -= 1,
            _ => {}
        }
    }
    (middle, lines.len())
}

#[cfg(test)]
mod tests {
    use super::Template;

    #[test]
    fn directives() {
        let source = "\
let a = $A;
//! if ON
//! each i N
let x$i = y${i}z;
//! end
//! else
off
//! end
//! if OFF
off
//! else
on
//! end
$UNKNOWN";
        let template = Template::new()
            .set("A", "1u")
            .set("ON", true)
            .set("N", 2)
            .set("OFF", false);
        assert_eq!(
            template.expand(&[source]),
            "let a = 1u;\nlet x0 = y0z;\nlet x1 = y1z;\non\n$UNKNOWN\n"
        );
    }

    #[test]
    fn loops_nest() {
        let source = "//! each i 2\n//! each j 2\nc$i$j\n//! end\n//! end";
        assert_eq!(Template::new().expand(&[source]), "c00\nc01\nc10\nc11\n");
    }
}
