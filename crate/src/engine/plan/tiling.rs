//! How a picture's decoder is divided, in the words of the memory plan.

use serde::Serialize;

/// What is asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum VaeMethod {
    /// The first of the others that fits.
    #[default]
    Auto,
    /// At once.
    Whole,
    /// In strips of rows that share the statistics of the norms: the same picture, up to rounding.
    Exact,
    /// In tiles that are decoded each for itself and blended where they overlap: close to the same picture.
    Blended,
}

impl VaeMethod {
    /// All of them, by the names that users give.
    pub const NAMED: [(&'static str, Self); 4] = [
        ("auto", Self::Auto),
        ("whole", Self::Whole),
        ("exact", Self::Exact),
        ("blended", Self::Blended),
    ];
}

/// What a plan does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(tag = "method", rename_all = "snake_case")]
pub enum VaeTiling {
    /// The whole picture at once.
    Whole,
    /// The whole picture in strips.
    Exact {
        /// Most bytes of what is computed for a strip alone.
        strip_bytes: u64,
        /// Whether the largest picture is computed twice instead of stored.
        recomputes: bool,
    },
    /// Tiles; the plan and its work are those of one tile.
    Blended {
        /// Height and width of a tile, in latents.
        tile: [usize; 2],
        /// Number of tiles.
        tiles: usize,
    },
}

impl VaeTiling {
    /// Runs of the decoder for a picture.
    #[must_use]
    pub const fn runs(&self) -> usize {
        match self {
            Self::Whole | Self::Exact { .. } => 1,
            Self::Blended { tiles, .. } => *tiles,
        }
    }
}
