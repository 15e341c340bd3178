//! `plan`: prints, as JSON, the GPU memory a model takes at a size. Reads configs only: no weights, no GPU, no network.

use std::{ffi::OsString, fs, path::Path, process::ExitCode};

use latent_canvas::{
    cli::print,
    config::{ClipTextConfig, UNetConfig, VaeConfig, check_model_index},
    engine::plan::{MemoryPlan, Part, Plan, Verdict, calls::table},
    kernels::{Limits, Tuning},
    models::{
        choose::{PlanSubject, PlanWishes, choose_plan},
        plan::ModelConfigs,
    },
};
use serde::Serialize;

const HELP: &str = "\
plan --model DIR|sd15|sd21 --width PX --height PX [options]

Prints the GPU memory that a model takes at a size, as JSON. Needs the model's config.json files only.
Exits with 0 where the model fits, with 3 where it does not.

  --model DIR|NAME        a diffusers folder, or the configs of Stable Diffusion 1.5 (sd15) or 2.1 (sd21)
  --width PX --height PX  size of the picture; without them the model's own
  --budget BYTES          most memory to take: 133MB, 1.8GiB, 900MiB or a number of bytes
  --activations HOW       how activations are stored: f32, f16, or auto: float16 where float32 does not fit
  --guidance HOW          off, one-batch, two-passes, or auto: two passes where a batch does not fit
  --vae HOW               how the picture is decoded: whole, exact (in strips, the same picture up to rounding), blended (in tiles that
                          overlap), or auto: the first of them that fits
  --attention HOW         sliced, or auto: the memory-efficient form where there is a kernel for it
  --ops STAGE             instead of JSON, list the calls of text_encoder, unet or vae_decoder in their order: multiply-adds, memory,
                          kernel, shapes, operations, module
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

const STAGES: [&str; 3] = ["text_encoder", "unet", "vae_decoder"];

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
    wishes: PlanWishes,
    guided: bool,
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
    let subject = PlanSubject {
        width,
        height,
        guided: arguments.guided,
        steps: arguments.steps,
    };
    let (plan, verdict) = choose_plan(&configs, &subject, &arguments.wishes, &Limits::DEFAULT)
        .map_err(|error| error.to_string())?;
    let fits = verdict.fits;
    if let Some(stage) = &arguments.ops {
        let plans = [&plan.text_encoder, &plan.unet, &plan.vae_decoder];
        for plan in plans.into_iter().filter(|plan| plan.graph.name == stage) {
            print(&list_calls(plan))?;
        }
        return Ok(fits);
    }
    let report = Report {
        model: &arguments.model,
        width,
        height,
        steps: arguments.steps,
        budget_bytes: arguments.wishes.budget_bytes,
        verdict,
        plan: plan.memory,
    };
    let json = serde_json::to_string_pretty(&report).map_err(|error| error.to_string())?;
    print(&format!("{json}\n"))?;
    Ok(fits)
}

/// Those that run once a picture first.
fn list_calls(plan: &Plan) -> String {
    let (limits, tuning) = (Limits::DEFAULT, Tuning::default());
    let rows = Part::ALL.map(|part| plan.call_rows(part, &limits, &tuning));
    table(&rows.concat())
}

fn parse(mut parser: lexopt::Parser) -> Result<Option<Arguments>, lexopt::Error> {
    use lexopt::prelude::{Long, Short, ValueExt};
    let mut arguments = Arguments {
        model: String::new(),
        size: [None, None],
        wishes: PlanWishes::default(),
        guided: true,
        steps: 20,
        ops: None,
    };
    while let Some(argument) = parser.next()? {
        match argument {
            Short('h') | Long("help") => return Ok(None),
            Long("model") => arguments.model = parser.value()?.string()?,
            Long("width") => arguments.size[0] = Some(whole("width", &parser.value()?)?),
            Long("height") => arguments.size[1] = Some(whole("height", &parser.value()?)?),
            Long("steps") => arguments.steps = whole("steps", &parser.value()?)?,
            Long("ops") => {
                let stage = parser.value()?.string()?;
                if !STAGES.contains(&stage.as_str()) {
                    return Err(format!("--ops must be one of {}", STAGES.join(", ")).into());
                }
                arguments.ops = Some(stage);
            }
            Long(name) if PlanWishes::NAMES.contains(&name) => {
                let (name, value) = (name.to_owned(), parser.value()?.string()?);
                match (name.as_str(), value.as_str()) {
                    ("guidance", "off") => arguments.guided = false,
                    (name, value) => {
                        let set = arguments.wishes.set(name, value);
                        set.map_err(|error| error.to_string())?;
                    }
                }
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
        assert_eq!(arguments.wishes.budget_bytes, Some(1_000_000_000));
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
