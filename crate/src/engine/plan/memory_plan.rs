//! The promise: how much GPU memory a model takes at a size, before a byte of it is downloaded.
//!
//! Counted is what the engine creates itself: buffers of weights, the arena, and the staging buffers. What a browser or a driver
//! takes beside that (its own upload staging, compiled pipelines) is not in its hands and not in these figures.

use serde::{Serialize, Serializer};

use super::{
    Plan,
    program::{Dispatch, macs},
    tiling::VaeTiling,
};
use crate::kernels::{Limits, Precision, Tuning};

/// How classifier-free guidance runs the UNet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Guidance {
    /// One prediction a step: guidance scale 1.
    Off,
    /// Both predictions as a batch of two.
    OneBatch,
    /// One prediction after the other: half the activations.
    TwoPasses,
}

impl Guidance {
    /// Prompts that the text encoder reads.
    #[must_use]
    pub const fn prompts(self) -> usize {
        match self {
            Self::Off => 1,
            Self::OneBatch | Self::TwoPasses => 2,
        }
    }

    /// Batch of the UNet.
    #[must_use]
    pub const fn batch(self) -> usize {
        match self {
            Self::Off | Self::TwoPasses => 1,
            Self::OneBatch => 2,
        }
    }

    /// Runs of the UNet a step.
    #[must_use]
    pub const fn passes(self) -> usize {
        match self {
            Self::Off | Self::OneBatch => 1,
            Self::TwoPasses => 2,
        }
    }
}

/// Work of a list of kernel calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Work {
    /// Kernel calls.
    pub calls: usize,
    /// Dispatches; a call has several where a sum has to be finished before it is used.
    pub dispatches: usize,
    /// Multiply-adds of products and convolutions.
    pub macs: u64,
}

/// A range that a call binds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct LargestBinding {
    /// Size.
    pub bytes: u64,
    /// Kernel and module of the call.
    pub call: String,
}

/// Memory and work of one network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StageMemory {
    /// `text_encoder`, `unet`, `vae_decoder`.
    pub stage: &'static str,
    /// Weight values.
    pub parameters: u64,
    /// Buffers of weights.
    pub weights_bytes: u64,
    /// Buffers of activations.
    pub arena_bytes: u64,
    /// The part of the arena that is kept for the whole picture: inputs, outputs, and what is computed once a picture.
    pub kept_bytes: u64,
    /// What no arena for these calls can be below.
    pub lower_bound_bytes: u64,
    /// The heuristic that found the arena's offsets.
    pub heuristic: &'static str,
    /// The buffers of parameters and of the step, and the one through which the outputs are read back.
    pub staging_bytes: u64,
    /// Everything of this stage.
    pub peak_bytes: u64,
    /// The largest range bound in a dispatch.
    pub largest_binding: LargestBinding,
    /// The largest buffer.
    pub largest_buffer_bytes: u64,
    /// Buffers in all.
    pub buffers: usize,
    /// Work done once a picture, in all passes.
    pub once: Work,
    /// Work of one run (of a step and pass, where the network has steps).
    pub run: Work,
    /// What a run would do in addition if nothing were computed once a picture.
    pub saved_per_run: Work,
    /// Passes of a step.
    pub passes: usize,
    /// The first call that the limits do not allow.
    pub refused: Option<String>,
}

impl StageMemory {
    /// The figures of a plan under `limits`.
    #[must_use]
    pub fn new(plan: &Plan, limits: &Limits) -> Self {
        let program = &plan.program;
        let mut survey = Survey::new(limits);
        let schedule = survey.visit(&program.schedule);
        let image = survey.visit(&program.image);
        let run = survey.visit(&program.step);
        let passes = plan.arena.passes;
        let read_back: u64 = program
            .outputs
            .iter()
            .map(|port| program.slot(port.slot).bytes * passes as u64)
            .sum();
        let align = |bytes: u64| bytes.next_multiple_of(limits.offset_alignment_bytes);
        let step_uniform = if program.reads_step() {
            limits.offset_alignment_bytes
        } else {
            0
        };
        let staging_bytes = survey.params_bytes + step_uniform + align(read_back);
        let (weights_bytes, arena_bytes) = (plan.weights.bytes(), plan.arena.bytes());
        let rows = program.steps.unwrap_or(1) as u64;
        Self {
            stage: plan.graph.name,
            parameters: plan.graph.parameters(),
            weights_bytes,
            arena_bytes,
            kept_bytes: plan.arena.buffers[plan.arena.transient_buffers..]
                .iter()
                .sum(),
            lower_bound_bytes: plan.arena.lower_bound_bytes,
            heuristic: plan.arena.heuristic,
            staging_bytes,
            peak_bytes: weights_bytes + arena_bytes + staging_bytes,
            largest_binding: survey.largest,
            largest_buffer_bytes: plan
                .arena
                .buffers
                .iter()
                .chain(&plan.weights.buffers)
                .copied()
                .chain([survey.params_bytes, align(read_back)])
                .max()
                .unwrap_or(0),
            buffers: plan.arena.buffers.len()
                + plan.weights.buffers.len()
                + 2
                + usize::from(step_uniform > 0),
            once: Work {
                calls: schedule.calls + passes * image.calls,
                dispatches: schedule.dispatches + passes * image.dispatches,
                macs: schedule.macs + passes as u64 * image.macs,
            },
            run,
            saved_per_run: Work {
                calls: schedule.calls + image.calls,
                dispatches: schedule.dispatches + image.dispatches,
                macs: schedule.macs / rows + image.macs,
            },
            passes,
            refused: survey.refused,
        }
    }
}

/// Goes through the dispatches of calls.
struct Survey<'a> {
    limits: &'a Limits,
    largest: LargestBinding,
    params_bytes: u64,
    refused: Option<String>,
}

impl<'a> Survey<'a> {
    fn new(limits: &'a Limits) -> Self {
        Self {
            limits,
            largest: LargestBinding::default(),
            params_bytes: 0,
            refused: None,
        }
    }

    fn visit(&mut self, calls: &[Dispatch]) -> Work {
        let mut work = Work {
            calls: calls.len(),
            dispatches: 0,
            macs: macs(calls),
        };
        for call in calls {
            let name = format!("{} of {}", call.kernel.name(), call.module);
            let bindings: Vec<u64> = match call.kernel.launches(self.limits, &Tuning::default()) {
                Ok(launches) => {
                    work.dispatches += launches.len();
                    for launch in &launches {
                        let words = 4 * launch.params.len() as u64;
                        self.params_bytes +=
                            words.next_multiple_of(self.limits.offset_alignment_bytes);
                    }
                    let bindings = launches.iter().flat_map(|launch| &launch.bindings);
                    bindings.map(|binding| binding.bytes).collect()
                }
                Err(error) => {
                    work.dispatches += 1;
                    self.refused
                        .get_or_insert_with(|| format!("{name}: {error}"));
                    let operands = call.kernel.operands();
                    operands.iter().map(|operand| operand.bytes).collect()
                }
            };
            for bytes in bindings {
                if bytes > self.largest.bytes {
                    self.largest = LargestBinding {
                        bytes,
                        call: name.clone(),
                    };
                }
            }
        }
        work
    }
}

/// What is in GPU memory at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Residency {
    /// The weights of all stages, from the first picture on; the arena of one stage.
    AllStages,
    /// One stage with its weights; a stage's weights are freed before the next stage's come.
    StageByStage,
}

/// Bytes of a [`Residency`] at its peak.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Peak {
    /// Buffers of weights.
    pub weights_bytes: u64,
    /// Buffers of activations.
    pub arena_bytes: u64,
    /// Staging buffers.
    pub staging_bytes: u64,
    /// All of them.
    pub peak_bytes: u64,
    /// The stage at which it is reached.
    pub stage: &'static str,
}

/// The memory of a model at a size.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MemoryPlan {
    /// How guidance runs.
    pub guidance: Guidance,
    /// How activations are stored; those of a VAE with `force_upcast` as float32 in any case.
    #[serde(serialize_with = "name")]
    pub activations: Precision,
    /// How the VAE decodes; its stage is one run of it.
    pub vae: VaeTiling,
    /// Each stage.
    pub stages: Vec<StageMemory>,
    /// The peak with all weights resident.
    pub all_stages: Peak,
    /// The peak with one stage resident at a time.
    pub stage_by_stage: Peak,
    /// The largest range bound in a dispatch.
    pub largest_binding_bytes: u64,
    /// The largest buffer.
    pub largest_buffer_bytes: u64,
}

/// Whether a model can be run, how, and if not, why not and what helps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// Whether it can be run.
    pub fits: bool,
    /// The first way that fits: the one with more in memory is the faster one.
    pub residency: Option<Residency>,
    /// Its peak; where nothing fits, the smallest there is.
    pub peak_bytes: u64,
    /// Why, as a sentence.
    pub reason: String,
    /// What to change, as a sentence; empty where it fits.
    pub remedy: String,
}

impl MemoryPlan {
    /// Adds up the stages, given in the order in which they run.
    #[must_use]
    pub fn new(guidance: Guidance, activations: Precision, stages: Vec<StageMemory>) -> Self {
        let all_weights: u64 = stages.iter().map(|stage| stage.weights_bytes).sum();
        let peak = |weights: fn(&StageMemory, u64) -> u64| {
            stages
                .iter()
                .map(|stage| {
                    let weights_bytes = weights(stage, all_weights);
                    Peak {
                        weights_bytes,
                        arena_bytes: stage.arena_bytes,
                        staging_bytes: stage.staging_bytes,
                        peak_bytes: weights_bytes + stage.arena_bytes + stage.staging_bytes,
                        stage: stage.stage,
                    }
                })
                .max_by_key(|peak| peak.peak_bytes)
                .unwrap_or(Peak {
                    weights_bytes: 0,
                    arena_bytes: 0,
                    staging_bytes: 0,
                    peak_bytes: 0,
                    stage: "none",
                })
        };
        Self {
            guidance,
            activations,
            vae: VaeTiling::Whole,
            all_stages: peak(|_, all| all),
            stage_by_stage: peak(|stage, _| stage.weights_bytes),
            largest_binding_bytes: stages
                .iter()
                .map(|stage| stage.largest_binding.bytes)
                .max()
                .unwrap_or(0),
            largest_buffer_bytes: stages
                .iter()
                .map(|stage| stage.largest_buffer_bytes)
                .max()
                .unwrap_or(0),
            stages,
        }
    }

    /// The same with another way to decode than whole.
    #[must_use]
    pub const fn with_vae(mut self, vae: VaeTiling) -> Self {
        self.vae = vae;
        self
    }

    /// The peak of a residency.
    #[must_use]
    pub fn peak(&self, residency: Residency) -> &Peak {
        match residency {
            Residency::AllStages => &self.all_stages,
            Residency::StageByStage => &self.stage_by_stage,
        }
    }

    /// Whether the model can be run within `limits` and, where one is given, `budget_bytes`.
    #[must_use]
    pub fn fits(&self, limits: &Limits, budget_bytes: Option<u64>) -> Verdict {
        if let Some(refusal) = self.refusal(limits) {
            return refusal;
        }
        let budget = budget_bytes.unwrap_or(u64::MAX);
        for (residency, peak) in [
            (Residency::AllStages, &self.all_stages),
            (Residency::StageByStage, &self.stage_by_stage),
        ] {
            if peak.peak_bytes <= budget {
                let how = match residency {
                    Residency::AllStages => "All stages stay in GPU memory",
                    Residency::StageByStage => "One stage at a time is in GPU memory",
                };
                return Verdict {
                    fits: true,
                    residency: Some(residency),
                    peak_bytes: peak.peak_bytes,
                    reason: format!("{how}: {} at the {}.", mib(peak.peak_bytes), peak.stage),
                    remedy: String::new(),
                };
            }
        }
        let peak = &self.stage_by_stage;
        Verdict {
            fits: false,
            residency: None,
            peak_bytes: peak.peak_bytes,
            reason: format!(
                "The {} alone takes {} ({} of weights, {} of activations), and {} are allowed.",
                peak.stage,
                mib(peak.peak_bytes),
                mib(peak.weights_bytes),
                mib(peak.arena_bytes),
                mib(budget)
            ),
            remedy: self.remedy(budget),
        }
    }

    fn refusal(&self, limits: &Limits) -> Option<Verdict> {
        let refused = |stage: &StageMemory, reason: String| {
            Some(Verdict {
                fits: false,
                residency: None,
                peak_bytes: self.stage_by_stage.peak_bytes,
                reason,
                remedy: self.smaller(stage.stage, "a GPU with larger limits"),
            })
        };
        for stage in &self.stages {
            let (name, binding) = (stage.stage, &stage.largest_binding);
            if binding.bytes > limits.max_storage_buffer_binding_bytes {
                return refused(
                    stage,
                    format!(
                        "The {name} binds {} at once ({}), and this GPU's limit is {}.",
                        mib(binding.bytes),
                        binding.call,
                        mib(limits.max_storage_buffer_binding_bytes)
                    ),
                );
            }
            if stage.largest_buffer_bytes > limits.max_buffer_bytes {
                return refused(
                    stage,
                    format!(
                        "The {name} needs a buffer of {}, and this GPU's limit is {}.",
                        mib(stage.largest_buffer_bytes),
                        mib(limits.max_buffer_bytes)
                    ),
                );
            }
            if let Some(why) = &stage.refused {
                return refused(stage, format!("The {name} cannot run: {why}"));
            }
        }
        None
    }

    fn remedy(&self, budget: u64) -> String {
        let peak = &self.stage_by_stage;
        if peak.weights_bytes > budget {
            return format!(
                "Allow {} for this size, or choose a smaller model: its weights alone take {}.",
                mib(peak.peak_bytes),
                mib(peak.weights_bytes)
            );
        }
        let passes = match self.guidance {
            Guidance::OneBatch if peak.stage == "unet" => "guidance in two passes",
            Guidance::OneBatch | Guidance::TwoPasses | Guidance::Off => "",
        };
        format!(
            "Allow {} for this size. {}",
            mib(peak.peak_bytes),
            self.smaller(peak.stage, passes)
        )
    }

    /// What makes the activations of a stage smaller, and one thing more.
    fn smaller(&self, stage: &str, more: &str) -> String {
        let mut list = vec!["a smaller width and height"];
        match self.vae {
            _ if stage != "vae_decoder" => {}
            VaeTiling::Whole => list.push("a VAE that decodes in strips or tiles"),
            VaeTiling::Exact { .. } => list.push("a VAE that decodes in tiles"),
            VaeTiling::Blended { .. } => {}
        }
        if self.activations == Precision::F32 {
            list.push("float16 activations");
        }
        list.extend(Some(more).filter(|more| !more.is_empty()));
        format!("Choose {}.", list.join(", or "))
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn name<S: Serializer>(precision: &Precision, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(match precision {
        Precision::F32 => "f32",
        Precision::F16 => "f16",
    })
}

/// Rounded up: a budget of what is printed must be enough.
#[allow(clippy::cast_precision_loss)]
fn mib(bytes: u64) -> String {
    format!(
        "{:.1} MiB",
        (bytes as f64 * 10.0 / f64::from(1 << 20)).ceil() / 10.0
    )
}
