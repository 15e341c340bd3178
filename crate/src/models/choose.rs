//! Which plan is taken: the first that fits what the GPU and the budget allow, the better ones before the smaller ones.

use super::plan::{ModelConfigs, ModelPlan, PlanRequest};
use crate::{
    Error, Result,
    engine::plan::{AttentionChoice, Guidance, LowerOptions, Residency, VaeMethod, Verdict},
    kernels::{Limits, Precision},
};

/// What the user wants of a plan; what is not set is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PlanWishes {
    /// How activations are stored. Without a wish float32, and float16 where that does not fit.
    pub activations: Option<Precision>,
    /// How guidance runs, where there is guidance. Without a wish as a batch of two, and in two passes where that does not fit.
    pub guidance: Option<Guidance>,
    /// How attention is computed. Without a wish the memory-efficient form wherever there is a kernel for it.
    pub attention: Option<AttentionChoice>,
    /// How the picture is decoded. By default whole where that fits, in exact strips where it does not, else in blended tiles.
    pub vae: VaeMethod,
    /// Most bytes of GPU memory to take.
    pub budget_bytes: Option<u64>,
    /// Whether tiles are measured on the GPU when a model is loaded. Without a wish they are, but for software on a CPU, which is known.
    pub autotune: Option<bool>,
}

impl PlanWishes {
    /// The names that [`Self::set`] knows.
    pub const NAMES: [&str; 6] = [
        "activations",
        "guidance",
        "attention",
        "vae",
        "budget",
        "autotune",
    ];

    /// Sets a wish from text: `activations` to `f32` or `f16`, `guidance` to `one-batch` or `two-passes`, `attention` to `sliced`,
    /// `vae` to `whole`, `exact` or `blended`, `autotune` to `on` or `off`, each of them to `auto`; `budget` to a size as [`parse_bytes`] reads it, or `none`.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] names the wish and its values.
    pub fn set(&mut self, name: &str, value: &str) -> Result<()> {
        match name {
            "activations" => {
                let known = [("f32", Precision::F32), ("f16", Precision::F16)];
                self.activations = choice(name, value, &known)?;
            }
            "guidance" => {
                let known = [
                    ("one-batch", Guidance::OneBatch),
                    ("two-passes", Guidance::TwoPasses),
                ];
                self.guidance = choice(name, value, &known)?;
            }
            "attention" => {
                let known = [("sliced", AttentionChoice::Sliced)];
                self.attention = choice(name, value, &known)?;
            }
            "vae" => {
                let known = VaeMethod::NAMED.into_iter();
                let known: Vec<_> = known.filter(|(known, _)| *known != "auto").collect();
                self.vae = choice(name, value, &known)?.unwrap_or_default();
            }
            "autotune" => {
                self.autotune = choice(name, value, &[("on", true), ("off", false)])?;
            }
            "budget" => {
                self.budget_bytes = match value {
                    "none" => None,
                    size => Some(parse_bytes(size)?),
                };
            }
            _ => {
                let known = Self::NAMES.join(", ");
                return Err(Error::invalid(
                    "option",
                    format!("must be one of {known}, and is {name:?}"),
                ));
            }
        }
        Ok(())
    }
}

fn choice<T: Copy>(name: &str, value: &str, known: &[(&str, T)]) -> Result<Option<T>> {
    if value == "auto" {
        return Ok(None);
    }
    let found = known.iter().find(|(known, _)| *known == value);
    match found {
        Some(&(_, choice)) => Ok(Some(choice)),
        None => {
            let known: Vec<_> = known.iter().map(|&(known, _)| known).collect();
            let rule = format!("must be auto or {}, and is {value:?}", known.join(" or "));
            Err(Error::invalid(name, rule))
        }
    }
}

/// `133MB`, `1.8GiB`, `900MiB`, or a number of bytes.
///
/// # Errors
/// [`Error::InvalidArgument`] for anything else; half a byte is a forgotten unit.
pub fn parse_bytes(text: &str) -> Result<u64> {
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
        Ok(number)
            if number.is_finite() && number >= 0.0 && (unit > 1.0 || number.fract() == 0.0) =>
        {
            Ok((number * unit) as u64)
        }
        _ => Err(Error::invalid(
            "budget",
            format!("must be a number of bytes, like 133MB or 1.8GiB, and is {text:?}"),
        )),
    }
}

/// What is to be drawn, for the choice of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlanSubject {
    /// Picture width, px.
    pub width: usize,
    /// Picture height, px.
    pub height: usize,
    /// Whether there is guidance: two predictions a step.
    pub guided: bool,
    /// Calls of the UNet.
    pub steps: usize,
}

/// The first plan that fits, of these in turn: all stages resident, then stage by stage; within each float32 before float16 activations,
/// and guidance as a batch before two passes. Where none fits, the smallest, whose verdict says so.
///
/// # Errors
/// As [`ModelPlan::new`].
pub fn choose_plan(
    configs: &ModelConfigs,
    subject: &PlanSubject,
    wishes: &PlanWishes,
    limits: &Limits,
) -> Result<(ModelPlan, Verdict)> {
    let activations = match wishes.activations {
        Some(precision) => vec![precision],
        None => vec![Precision::F32, Precision::F16],
    };
    let guidance = match (subject.guided, wishes.guidance) {
        (false, _) => vec![Guidance::Off],
        (true, Some(guidance)) => vec![guidance],
        (true, None) => vec![Guidance::OneBatch, Guidance::TwoPasses],
    };
    let mut best: Option<(ModelPlan, Verdict)> = None;
    for &precision in &activations {
        for &guidance in &guidance {
            let mut options = LowerOptions::new(precision);
            options.hoist_schedule = Some(subject.steps);
            options.attention = wishes.attention.unwrap_or(options.attention);
            let request = PlanRequest {
                width: subject.width,
                height: subject.height,
                guidance,
                options,
                limits: *limits,
                vae: wishes.vae,
                budget_bytes: wishes.budget_bytes,
            };
            let plan = ModelPlan::new(configs, &request)?;
            let verdict = plan.memory.fits(limits, wishes.budget_bytes);
            if verdict.residency == Some(Residency::AllStages) {
                return Ok((plan, verdict));
            }
            let is_better = best.as_ref().is_none_or(|(_, best)| {
                (verdict.fits && !best.fits)
                    || (verdict.fits == best.fits
                        && !best.fits
                        && verdict.peak_bytes < best.peak_bytes)
            });
            if is_better {
                best = Some((plan, verdict));
            }
        }
    }
    best.ok_or_else(|| Error::invalid("plan", "must have a way to be made"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn budgets_have_units() {
        let bytes = |text| parse_bytes(text).ok();
        assert_eq!(bytes("133MB"), Some(133_000_000));
        assert_eq!(bytes("900 MiB"), Some(900 << 20));
        assert_eq!(bytes("1.5GiB"), Some(3 << 29));
        assert_eq!(bytes("1024"), Some(1024));
        for wrong in ["", "1.8", "MB", "-1MB", "12XB", "NaN", "inf"] {
            assert_eq!(bytes(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn wishes_are_read_and_wrong_ones_are_told_by_name() {
        let mut wishes = PlanWishes::default();
        wishes.set("activations", "f16").unwrap();
        wishes.set("guidance", "two-passes").unwrap();
        wishes.set("budget", "1GB").unwrap();
        assert_eq!(wishes.activations, Some(Precision::F16));
        assert_eq!(wishes.guidance, Some(Guidance::TwoPasses));
        assert_eq!(wishes.budget_bytes, Some(1_000_000_000));
        wishes.set("activations", "auto").unwrap();
        assert_eq!(wishes.activations, None);
        for (name, value) in [
            ("activations", "f8"),
            ("guidance", "off"),
            ("budget", "lots"),
        ] {
            let message = wishes.set(name, value).unwrap_err().to_string();
            assert!(message.starts_with(&format!("The {name} ")), "{message}");
        }
        assert!(wishes.set("colour", "red").is_err());
    }
}
