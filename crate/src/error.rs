//! The one error type of the crate. `code()` is stable and is what a page may test; the message is for people and may change.

use weights_loader::LoadError;

/// Everything that can go wrong between a prompt and a picture.
///
/// Each variant says what the user can do about it.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file of the model could not be had or is not what it should be; the inner error says which and what to do.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// There is no usable WebGPU adapter. Choose the CPU engine, or a browser and a machine with WebGPU.
    #[error(
        "{why} Choose the CPU engine (engine=\"cpu\"), or open the page in a browser with WebGPU."
    )]
    NoWebGpu {
        /// What was missing, as a sentence.
        why: String,
    },
    /// The adapter offers less than the work needs. Choose a smaller size, or the CPU engine.
    #[error(
        "This GPU's limit {limit} is {available}, and {needed} are needed. Choose a smaller width and height, or engine=\"cpu\"."
    )]
    LimitTooSmall {
        /// WebGPU's name of the limit.
        limit: String,
        /// What the work needs, in the limit's unit.
        needed: u64,
        /// What the adapter offers, in the limit's unit.
        available: u64,
    },
    /// More memory is needed than there is. Choose a smaller width and height, or close other tabs.
    #[error(
        "There is not enough memory: {needed_bytes} bytes are needed, {budget_bytes} are allowed. Choose a smaller width and height, or close other tabs."
    )]
    OutOfMemory {
        /// Bytes that the work needs.
        needed_bytes: u64,
        /// Bytes that it may take.
        budget_bytes: u64,
    },
    /// The planner found, before anything was fetched, that the work does not fit what the GPU or the budget allows.
    #[error("{reason} {remedy}")]
    DoesNotFit {
        /// What is too large, as a sentence.
        reason: String,
        /// What to change, as a sentence.
        remedy: String,
    },
    /// The browser took the GPU away (driver reset, sleep, another tab). Generate again: a new device is made.
    #[error(
        "The GPU was lost ({why}). Generate again; if it happens every time, choose engine=\"cpu\"."
    )]
    DeviceLost {
        /// The browser's reason.
        why: String,
    },
    /// A value was NaN or infinite, so no picture is shown. The weights may be damaged: load the model again.
    #[error(
        "The module {module} gave a value that is not finite, so there is no picture. The model's weights may be damaged: load the model again, or try another seed."
    )]
    NotFinite {
        /// The stage or module whose output was not finite.
        module: String,
    },
    /// A setting breaks a rule; the rule is in the message.
    #[error("The {name} {rule}.")]
    InvalidArgument {
        /// The setting, as the page spells it.
        name: String,
        /// What is allowed; it goes on from "The seed" and has no full stop: `must be ..., and is ...`.
        rule: String,
    },
    /// A config file of the model lacks something or asks for something this program does not do.
    #[error(
        "The model's file {file} cannot be used: {why}. Use a Stable Diffusion model whose files belong together."
    )]
    Config {
        /// The file, relative to the model's folder.
        file: String,
        /// What is missing or not supported, without a full stop.
        why: String,
    },
    /// The plan for a network is wrong: a bug of this program. Please report it; the CPU engine plans nothing.
    #[error(
        "The plan for the {network} is wrong: {why}. This is a bug: please report it, and choose engine=\"cpu\" meanwhile."
    )]
    Plan {
        /// The network: `text_encoder`, `unet`, `vae_decoder`.
        network: String,
        /// The call and what is wrong with it.
        why: String,
    },
    /// The user cancelled. Nothing to do.
    #[error("The picture was cancelled. Generate again to start anew.")]
    Cancelled,
}

impl Error {
    /// The stable code of this error, the same in every release.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Load(error) => error.code(),
            Self::NoWebGpu { .. } => "no-webgpu",
            Self::LimitTooSmall { .. } => "limit-too-small",
            Self::OutOfMemory { .. } => "out-of-memory",
            Self::DoesNotFit { .. } => "does-not-fit",
            Self::DeviceLost { .. } => "device-lost",
            Self::NotFinite { .. } => "not-finite",
            Self::InvalidArgument { .. } => "invalid-argument",
            Self::Config { .. } => "config",
            Self::Plan { .. } => "plan",
            Self::Cancelled => "cancelled",
        }
    }

    /// The message at a length that people read: it may quote a file, whose names and values may be megabytes long.
    #[must_use]
    pub fn sentence(&self) -> String {
        const START: usize = 300;
        const END: usize = 150;
        let text = self.to_string();
        let count = text.chars().count();
        if count <= START + END {
            return text;
        }
        let start: String = text.chars().take(START).collect();
        let end: String = text.chars().skip(count - END).collect();
        format!("{start} [...] {end}")
    }

    pub(crate) fn config(file: &str, why: impl Into<String>) -> Self {
        Self::Config {
            file: file.to_owned(),
            why: why.into(),
        }
    }

    pub(crate) fn invalid(name: &str, rule: impl Into<String>) -> Self {
        Self::InvalidArgument {
            name: name.to_owned(),
            rule: rule.into(),
        }
    }
}
