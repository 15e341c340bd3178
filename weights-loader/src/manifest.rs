//! What a model consists of: its files, their lengths and checksums.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::LoadError;

/// The files of a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// The model's name.
    pub name: String,
    /// The guidance scale that suits it, where it is another than the usual 7.5.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guidance_scale: Option<f32>,
    /// Its files.
    pub files: Vec<ManifestFile>,
}

/// One file of a model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestFile {
    /// Where it lies, relative to the model's folder, with `/`: `unet/diffusion_pytorch_model.safetensors`.
    pub path: String,
    /// Its length in bytes.
    pub length: u64,
    /// Its SHA-256 as 64 lower-case hexadecimal digits.
    pub sha256: String,
}

impl Manifest {
    /// Parses and checks a manifest's JSON; `name` is its path or address, for messages.
    ///
    /// # Errors
    /// `Text` when it is no manifest, a path leads out of the model's folder or occurs twice, a checksum is no SHA-256,
    /// or the lengths overflow.
    pub fn parse(name: &str, json: &str) -> Result<Self, LoadError> {
        let error = |why: String| LoadError::Text {
            name: name.to_owned(),
            why,
        };
        let manifest: Self =
            serde_json::from_str(json).map_err(|e| error(format!("it is no manifest: {e}")))?;
        let mut paths = BTreeSet::new();
        let mut total = 0u64;
        for file in &manifest.files {
            let path = &file.path;
            // a path is joined to the model's address, so it must not be able to replace it
            if path.contains(['\\', ':', '?', '#'])
                || path.split('/').any(|part| matches!(part, "" | "." | ".."))
            {
                return Err(error(format!(
                    "{path:?} is no path inside the model's folder"
                )));
            }
            if !paths.insert(path.as_str()) {
                return Err(error(format!("it lists {path} twice")));
            }
            if file.sha256.len() != 64
                || !file
                    .sha256
                    .bytes()
                    .all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
            {
                return Err(error(format!(
                    "the checksum of {path} is not 64 lower-case hexadecimal digits"
                )));
            }
            total = total
                .checked_add(file.length)
                .ok_or_else(|| error("its lengths add up to more than 2^64".to_owned()))?;
        }
        Ok(manifest)
    }

    /// The length of all files together, in bytes.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        self.files
            .iter()
            .fold(0, |sum, file| sum.saturating_add(file.length))
    }

    /// The entry of this path.
    #[must_use]
    pub fn get(&self, path: &str) -> Option<&ManifestFile> {
        self.files.iter().find(|file| file.path == path)
    }
}
