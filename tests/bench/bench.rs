//! `bench`: the engines side by side on a native adapter, and what each optimisation brings. `./build.sh bench` starts it, and has it write
//! what the page needs to measure the same in Chromium.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[cfg(not(target_family = "wasm"))]
mod ablation;
#[cfg(not(target_family = "wasm"))]
mod export;
#[cfg(not(target_family = "wasm"))]
mod native;

#[cfg(target_family = "wasm")]
fn main() {}

#[cfg(not(target_family = "wasm"))]
fn main() -> std::process::ExitCode {
    program::main()
}

#[cfg(not(target_family = "wasm"))]
mod program {
    use std::{path::PathBuf, process::ExitCode};

    use latent_canvas_bench::{
        report::Report,
        rows::{ROWS, Row, row},
    };
    use lexopt::{Arg, Parser, ValueExt};

    const HELP: &str = "\
bench [options]

Measures the rows on the native adapter, with every engine that is compiled in, and prints a table.
Run from the root of the repository.

  --rows A,B       only these rows
  --rounds N       samples of each engine, of which the median counts; 5 without it
  --json FILE      also write the figures as JSON
  --ablation       instead: one optimisation off at a time, on the bundled model
  --export FOLDER  instead: write the rows, their inputs and the weights of single operations for the page and for the export to ONNX
  --table FILE     instead: print the table of a JSON file; fails when outputs differ
";

    enum What {
        Native,
        Ablation,
        Export(PathBuf),
        Table(PathBuf),
    }

    struct Options {
        what: What,
        rows: Vec<Row>,
        rounds: usize,
        json: Option<PathBuf>,
    }

    fn options() -> Result<Option<Options>, lexopt::Error> {
        let mut options = Options {
            what: What::Native,
            rows: ROWS.to_vec(),
            rounds: 5,
            json: None,
        };
        let mut parser = Parser::from_env();
        while let Some(arg) = parser.next()? {
            match arg {
                Arg::Long("rows") => {
                    let names = parser.value()?.string()?;
                    let rows: Result<_, _> = names.split(',').map(row).collect();
                    options.rows = rows.map_err(|error| lexopt::Error::from(error.to_string()))?;
                }
                Arg::Long("rounds") => options.rounds = parser.value()?.parse::<usize>()?.max(1),
                Arg::Long("json") => options.json = Some(parser.value()?.into()),
                Arg::Long("ablation") => options.what = What::Ablation,
                Arg::Long("export") => options.what = What::Export(parser.value()?.into()),
                Arg::Long("table") => options.what = What::Table(parser.value()?.into()),
                Arg::Long("help") => return Ok(None),
                _ => return Err(arg.unexpected()),
            }
        }
        Ok(Some(options))
    }

    pub(super) fn main() -> ExitCode {
        let options = match options() {
            Ok(Some(options)) => options,
            Ok(None) => {
                print!("{HELP}");
                return ExitCode::SUCCESS;
            }
            Err(error) => {
                eprintln!("bench: {error}\n\n{HELP}");
                return ExitCode::from(2);
            }
        };
        let Options {
            what,
            rows,
            rounds,
            json,
        } = options;
        let wrong = match what {
            What::Export(folder) => {
                super::export::export(&rows, &folder);
                return ExitCode::SUCCESS;
            }
            What::Ablation => {
                let report = pollster::block_on(super::ablation::measure(rounds));
                print!("{}", report.table());
                write(json, &report);
                return ExitCode::SUCCESS;
            }
            What::Table(file) => {
                let text = std::fs::read_to_string(file).unwrap();
                let report: Report = serde_json::from_str(&text).unwrap();
                print!("{}", report.table());
                report.wrong()
            }
            What::Native => {
                let report = pollster::block_on(super::native::measure(&rows, rounds));
                print!("{}", report.table());
                write(json, &report);
                report.wrong()
            }
        };
        // a row whose outputs differ compares nothing
        if wrong.is_empty() {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        }
    }

    fn write(file: Option<PathBuf>, report: &impl serde::Serialize) {
        if let Some(file) = file {
            let text = serde_json::to_string_pretty(report).unwrap();
            std::fs::write(&file, text).unwrap();
            eprintln!("written: {}", file.display());
        }
    }
}
