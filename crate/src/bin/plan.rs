//! `plan`: prints, as JSON, the GPU memory a model takes at a size. Reads configs only: no weights, no GPU, no network.

use std::{
    ffi::OsString,
    fmt::Write as _,
    fs,
    io::{ErrorKind, Write as _, stdout},
    path::Path,
    process::ExitCode,
};

use latent_canvas::{
    config::{ClipTextConfig, UNetConfig, VaeConfig, check_model_index},
    engine::plan::{Guidance, LowerOptions, MemoryPlan, Plan, VaeMethod, Verdict},
    kernels::{Limits, Precision},
    models::plan::{ModelConfigs, ModelPlan, PlanRequest},
};
use serde::Serialize;

const HELP: &str = "\
plan --model DIR|sd15|sd21 --width PX --height PX [options]

Prints the GPU memory that a model takes at a size, as JSON. Needs the model's config.json files only.
Exits with 0 where the model fits, with 3 where it does not.

  --model DIR|NAME        a diffusers folder, or the configs of Stable Diffusion 1.5 (sd15) or 2.1 (sd21)
  --width PX --height PX  size of the picture; without them the model's own
  --budget BYTES          most memory to take: 133MB, 1.8GiB, 900MiB or a number of bytes
  --activations f16|f32   how activations are stored; f16 without it
  --guidance HOW          off, one-batch, two-passes, or auto: one batch where it fits, else two passes
  --vae HOW               how the picture is decoded: whole, exact (in strips, the same picture up to rounding), blended (in tiles that
                          overlap), or auto: the first of them that fits
  --ops STAGE             instead of JSON, list the calls of text_encoder, unet or vae_decoder in their order:
                          million multiply-adds, MiB of activations bound, kernel, operations, module
  --steps N               steps of the schedule, whose time embeddings are computed beforehand; 20 without it
";

/// A model whose configs are built in.
struct Named {
    name: &'static str,
    text_encoder: &'static str,
    unet: &'static str,
    vae: &'static str,
}

macro_rules! named {
    ($name:literal) => {
        Named {
            name: $name,
            text_encoder: include_str!(concat!(
                "../../../tests/configs/",
                $name,
                "/text_encoder/config.json"
            )),
            unet: include_str!(concat!(
                "../../../tests/configs/",
                $name,
                "/unet/config.json"
            )),
            vae: include_str!(concat!(
                "../../../tests/configs/",
                $name,
                "/vae/config.json"
            )),
        }
    };
}

const NAMED: [Named; 2] = [named!("sd15"), named!("sd21")];

#[derive(Serialize)]
struct Report<'a> {
    model: &'a str,
    width: usize,
    height: usize,
    steps: usize,
    budget_bytes: Option<u64>,
    verdict: Verdict,
    plan: MemoryPlan,
}

struct Arguments {
    model: String,
    size: [Option<usize>; 2],
    budget_bytes: Option<u64>,
    activations: Precision,
    guidance: Option<Guidance>,
    vae: VaeMethod,
    steps: usize,
    ops: Option<String>,
}

fn main() -> ExitCode {
    match run() {
        Ok(fits) => ExitCode::from(if fits { 0 } else { 3 }),
        Err(message) => {
            eprintln!("plan: {message}");
            ExitCode::from(2)
        }
    }
}

fn run() -> Result<bool, String> {
    let Some(arguments) = parse(lexopt::Parser::from_env()).map_err(|e| e.to_string())? else {
        print(HELP)?;
        return Ok(true);
    };
    let configs = configs(&arguments.model)?;
    let own = configs.unet.sample_size.unwrap_or(64) * configs.vae.scale_factor();
    let [width, height] = arguments.size.map(|side| side.unwrap_or(own));
    let choices = match arguments.guidance {
        Some(guidance) => vec![guidance],
        None => vec![Guidance::OneBatch, Guidance::TwoPasses],
    };
    let mut best: Option<(ModelPlan, Verdict)> = None;
    for guidance in choices {
        let request = PlanRequest {
            width,
            height,
            guidance,
            options: LowerOptions {
                hoist_schedule: Some(arguments.steps),
                ..LowerOptions::new(arguments.activations)
            },
            limits: Limits::DEFAULT,
            vae: arguments.vae,
            budget_bytes: arguments.budget_bytes,
        };
        let plan = ModelPlan::new(&configs, &request).map_err(|error| error.to_string())?;
        let verdict = plan.memory.fits(&request.limits, arguments.budget_bytes);
        let fits = verdict.fits;
        // where nothing fits, the smallest is the one to speak of
        if fits
            || best
                .as_ref()
                .is_none_or(|(_, b)| verdict.peak_bytes < b.peak_bytes)
        {
            best = Some((plan, verdict));
        }
        if fits {
            break;
        }
    }
    let Some((plan, verdict)) = best else {
        return Err("there was nothing to plan".to_owned());
    };
    let fits = verdict.fits;
    if let Some(stage) = &arguments.ops {
        for plan in [&plan.text_encoder, &plan.unet, &plan.vae_decoder] {
            if plan.graph.name == stage {
                print(&list_calls(plan))?;
            }
        }
        return Ok(fits);
    }
    let report = Report {
        model: &arguments.model,
        width,
        height,
        steps: arguments.steps,
        budget_bytes: arguments.budget_bytes,
        verdict,
        plan: plan.memory,
    };
    let json = serde_json::to_string_pretty(&report).map_err(|error| error.to_string())?;
    print(&format!("{json}\n"))?;
    Ok(fits)
}

/// One line a call, those that run once a picture first.
#[allow(clippy::cast_precision_loss)]
fn list_calls(plan: &Plan) -> String {
    let program = &plan.program;
    let mut list = String::new();
    for (when, calls) in [
        ("schedule", &program.schedule),
        ("image", &program.image),
        ("step", &program.step),
    ] {
        for call in calls {
            let bound: u64 = call
                .arena()
                .map(|(slot, ..)| program.slot(slot).bytes)
                .sum();
            let nodes = call
                .nodes
                .iter()
                .map(|&node| plan.graph.nodes[node].op.name());
            // writing to a String cannot fail
            let _ = writeln!(
                list,
                "{when:8} {:10.2} {:8.2} {:12} {:30} {}",
                call.kernel.macs() as f64 / 1e6,
                bound as f64 / f64::from(1 << 20),
                call.kernel.name(),
                nodes.collect::<Vec<_>>().join("+"),
                call.module
            );
        }
    }
    list
}

/// Writes to standard output; a reader that has seen enough (`head`) is no error.
fn print(text: &str) -> Result<(), String> {
    match stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.to_string()),
        _ => Ok(()),
    }
}

fn parse(mut parser: lexopt::Parser) -> Result<Option<Arguments>, lexopt::Error> {
    use lexopt::prelude::{Long, Short, ValueExt};
    let mut arguments = Arguments {
        model: String::new(),
        size: [None, None],
        budget_bytes: None,
        activations: Precision::F16,
        guidance: None,
        vae: VaeMethod::Auto,
        steps: 20,
        ops: None,
    };
    while let Some(argument) = parser.next()? {
        match argument {
            Short('h') | Long("help") => return Ok(None),
            Long("model") => arguments.model = parser.value()?.string()?,
            Long("width") => arguments.size[0] = Some(whole("width", &parser.value()?)?),
            Long("height") => arguments.size[1] = Some(whole("height", &parser.value()?)?),
            Long("budget") => arguments.budget_bytes = Some(parser.value()?.parse_with(bytes)?),
            Long("steps") => arguments.steps = whole("steps", &parser.value()?)?,
            Long("ops") => {
                let stages = ["text_encoder", "unet", "vae_decoder"];
                let stages = stages.map(|stage| (stage, stage));
                arguments.ops = Some(choice(parser.value()?, &stages)?.to_owned());
            }
            Long("activations") => {
                arguments.activations = choice(
                    parser.value()?,
                    &[("f16", Precision::F16), ("f32", Precision::F32)],
                )?;
            }
            Long("vae") => arguments.vae = choice(parser.value()?, &VaeMethod::NAMED)?,
            Long("guidance") => {
                arguments.guidance = choice(
                    parser.value()?,
                    &[
                        ("auto", None),
                        ("off", Some(Guidance::Off)),
                        ("one-batch", Some(Guidance::OneBatch)),
                        ("two-passes", Some(Guidance::TwoPasses)),
                    ],
                )?;
            }
            other => return Err(other.unexpected()),
        }
    }
    if arguments.model.is_empty() {
        return Err("--model is missing; --help tells more".into());
    }
    Ok(Some(arguments))
}

/// A whole number that is not zero.
fn whole(option: &str, value: &OsString) -> Result<usize, String> {
    value
        .to_str()
        .and_then(|text| text.parse().ok())
        .filter(|&number| number > 0)
        .ok_or_else(|| {
            format!(
                "--{option} {}: give a whole number from 1 on",
                value.display()
            )
        })
}

fn choice<T: Copy>(value: OsString, choices: &[(&str, T)]) -> Result<T, lexopt::Error> {
    let found = choices.iter().find(|(name, _)| value.as_os_str() == *name);
    found.map(|&(_, choice)| choice).ok_or_else(|| {
        let names: Vec<_> = choices.iter().map(|&(name, _)| name).collect();
        format!("{}: must be one of {}", value.display(), names.join(", ")).into()
    })
}

/// `133MB`, `1.8GiB`, `900MiB`, or a number of bytes.
fn bytes(text: &str) -> Result<u64, String> {
    const UNITS: [(&str, f64); 6] = [
        ("GiB", 1_073_741_824.0),
        ("MiB", 1_048_576.0),
        ("KiB", 1024.0),
        ("GB", 1e9),
        ("MB", 1e6),
        ("kB", 1e3),
    ];
    let (number, unit) = UNITS
        .iter()
        .find_map(|&(name, unit)| Some((text.strip_suffix(name)?, unit)))
        .unwrap_or((text, 1.0));
    match number.trim().parse::<f64>() {
        // Half a byte is a forgotten unit.
        Ok(number)
            if number.is_finite() && number >= 0.0 && (unit > 1.0 || number.fract() == 0.0) =>
        {
            Ok((number * unit) as u64)
        }
        _ => Err("must be a number of bytes, like 133MB or 1.8GiB".to_owned()),
    }
}

fn configs(model: &str) -> Result<ModelConfigs, String> {
    let texts = match NAMED.iter().find(|named| named.name == model) {
        Some(named) => [named.text_encoder, named.unet, named.vae].map(str::to_owned),
        None if model == "sdxl" => {
            return Err("sdxl: Stable Diffusion XL is not supported yet (two text encoders, addition_embed_type text_time)".to_owned());
        }
        None => {
            let read = |file: &str| {
                fs::read_to_string(Path::new(model).join(file))
                    .map_err(|error| format!("{model}/{file}: {error}"))
            };
            check_model_index(&read("model_index.json")?).map_err(|error| error.to_string())?;
            [
                read("text_encoder/config.json")?,
                read("unet/config.json")?,
                read("vae/config.json")?,
            ]
        }
    };
    let parse = |texts: &[String; 3]| -> latent_canvas::Result<ModelConfigs> {
        Ok(ModelConfigs {
            text_encoder: ClipTextConfig::from_json(&texts[0])?,
            unet: UNetConfig::from_json(&texts[1])?,
            vae: VaeConfig::from_json(&texts[2])?,
        })
    };
    parse(&texts).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn budgets_have_units() {
        assert_eq!(bytes("133MB"), Ok(133_000_000));
        assert_eq!(bytes("900 MiB"), Ok(900 << 20));
        assert_eq!(bytes("1.5GiB"), Ok(3 << 29));
        assert_eq!(bytes("1024"), Ok(1024));
        for wrong in ["", "1.8", "MB", "-1MB", "12XB", "NaN", "inf"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn named_models_are_read_and_others_are_told_why_not() {
        for named in NAMED {
            assert!(configs(named.name).is_ok(), "{}", named.name);
        }
        assert!(configs("sdxl").unwrap_err().contains("not supported"));
        let message = configs("no/such/folder").unwrap_err();
        assert!(message.contains("model_index.json"), "{message}");
    }

    #[test]
    fn arguments_are_checked() {
        let parse_all = |list: &[&str]| parse(lexopt::Parser::from_args(list.iter().copied()));
        let arguments = parse_all(&["--model", "sd15", "--width=640", "--budget", "1GB"]);
        let arguments = arguments.unwrap().unwrap();
        assert_eq!(arguments.size, [Some(640), None]);
        assert_eq!(arguments.budget_bytes, Some(1_000_000_000));
        assert!(parse_all(&["--help"]).unwrap().is_none());
        for wrong in [
            &["--width", "512"][..],
            &["--model", "sd15", "--width", "big"],
            &["--model", "sd15", "--activations", "f8"],
            &["--model", "sd15", "--colour"],
        ] {
            assert!(parse_all(wrong).is_err(), "{wrong:?}");
        }
    }
}
