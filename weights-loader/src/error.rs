//! What can go wrong between a URL and a tensor.

/// Why weights could not be loaded. Every variant's message says what the user can do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The server answered with a status that is no success. Check the address, or try later (429, 5xx).
    #[error(
        "The server answered with HTTP status {status} for {url}. Check the model's address; if it is right, try again later."
    )]
    Http {
        /// The address that was asked.
        url: String,
        /// The HTTP status.
        status: u16,
    },
    /// A file on the disk is not there. Check the path.
    #[error(
        "The file {name} does not exist. Check the path; a model is a folder in diffusers' layout."
    )]
    NotFound {
        /// The file.
        name: String,
    },
    /// No answer, a cut connection, or a stall. Check the network and load again.
    #[error(
        "Reading {url} failed: {why}. Check the network connection and the address (and that the host allows other sites to read it), then load again."
    )]
    Network {
        /// The address that was asked.
        url: String,
        /// What the platform said.
        why: String,
    },
    /// The server ignored a range request where only a part was wanted. Use a host that supports ranges.
    #[error(
        "The server does not support range requests for {url}, and a part of the file is needed. Host the model on a server that does."
    )]
    RangeUnsupported {
        /// The address that was asked.
        url: String,
    },
    /// Fewer or more bytes arrived than the file has. Load again; if it stays, the file on the server is damaged.
    #[error(
        "The file {name} has {got} bytes where {expected} were expected. Load again; if this stays, the file on the server is incomplete."
    )]
    Truncated {
        /// The file.
        name: String,
        /// Bytes expected.
        expected: u64,
        /// Bytes received.
        got: u64,
    },
    /// The bytes are not those the manifest promises. Load again; if it stays, the file on the server was changed.
    #[error(
        "The file {name} does not match its SHA-256 checksum (expected {expected}, got {got}). Load again; if this stays, the file on the server was changed or damaged."
    )]
    ChecksumMismatch {
        /// The file.
        name: String,
        /// Lower-case hexadecimal SHA-256 of the manifest.
        expected: String,
        /// Lower-case hexadecimal SHA-256 of what arrived.
        got: String,
    },
    /// The file is no safetensors file, or its header breaks the format's rules.
    #[error(
        "The file {name} is not a usable safetensors file: {why}. The model's original file must be at this address."
    )]
    Header {
        /// The file.
        name: String,
        /// The rule that is broken, and the remedy.
        why: String,
    },
    /// A text file of the model (JSON, merges) cannot be read.
    #[error(
        "The file {name} cannot be used: {why}. The model's original file must be at this address."
    )]
    Text {
        /// The file.
        name: String,
        /// What is wrong with it.
        why: String,
    },
    /// The model needs a tensor that the file lacks. The file belongs to another model, or is incomplete.
    #[error(
        "The file {file} lacks tensors that the model needs: {names}. The file belongs to another model or is incomplete; use the file that belongs to this config.json."
    )]
    MissingTensor {
        /// The file.
        file: String,
        /// The tensors' names, with commas, cut after a few.
        names: String,
    },
    /// The file holds tensors that the model does not use. The file belongs to another model.
    #[error(
        "The file {file} holds tensors that this model does not use: {names}. The file belongs to another model; use the file that belongs to this config.json."
    )]
    UnusedTensor {
        /// The file.
        file: String,
        /// The tensors' names, with commas, cut after a few.
        names: String,
    },
    /// A tensor has another shape than the config says. Config and weights belong to different models.
    #[error(
        "The tensor {name} has the shape {got:?}, and the config asks for {expected:?}. Weights and config.json belong to different models; use those of one model."
    )]
    ShapeMismatch {
        /// The tensor.
        name: String,
        /// The shape that follows from config.json.
        expected: Vec<usize>,
        /// The shape in the file.
        got: Vec<usize>,
    },
    /// A tensor has a number format that is not supported. Convert the file to F16, BF16 or F32.
    #[error(
        "The tensor {name} is stored as {dtype}, which is not supported. Convert the file to F16, BF16 or F32."
    )]
    UnsupportedDtype {
        /// The tensor.
        name: String,
        /// The format as the file spells it.
        dtype: String,
    },
    /// The browser's or the disk's storage failed. The message says how; running without storing still works.
    #[error("Storage failed: {why}. Free some memory or disk space, then load again.")]
    Storage {
        /// What the platform said.
        why: String,
    },
    /// The user cancelled. Nothing to do.
    #[error("The download was cancelled. Load again to start it anew.")]
    Cancelled,
}

impl LoadError {
    /// The stable code of this error, the same in every release.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Http { .. } => "http",
            Self::NotFound { .. } => "not-found",
            Self::Network { .. } => "network",
            Self::RangeUnsupported { .. } => "range-unsupported",
            Self::Truncated { .. } => "truncated",
            Self::ChecksumMismatch { .. } => "checksum-mismatch",
            Self::Header { .. } => "header",
            Self::Text { .. } => "text",
            Self::MissingTensor { .. } => "missing-tensor",
            Self::UnusedTensor { .. } => "unused-tensor",
            Self::ShapeMismatch { .. } => "shape-mismatch",
            Self::UnsupportedDtype { .. } => "unsupported-dtype",
            Self::Storage { .. } => "storage",
            Self::Cancelled => "cancelled",
        }
    }

    /// Whether the file is simply not there: an optional one may be left out.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::NotFound { .. } | Self::Http { status: 404, .. })
    }
}
