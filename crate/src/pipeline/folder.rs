//! The files of a model, in diffusers' folder layout.

use weights_loader::{
    ByteSource, LoadError, Manifest, ManifestFile, ProgressSum, TensorSink, load_safetensors,
    load_text,
};

use crate::{
    Error, Result,
    models::names::Component,
    observer::{Event, Observer},
    tokenizer::ClipTokenizer,
};

/// Largest text file that is read: a vocabulary has about 1 MB.
const MAX_TEXT_BYTES: u64 = 32 << 20;

/// Where the files of a model are, in diffusers' folder layout.
pub trait ModelFolder {
    /// What a file is read through.
    type Source: ByteSource;

    /// The folder's address, for names and messages.
    fn location(&self) -> &str;

    /// A file of the folder, by its path with `/`.
    fn open(&self, path: &str) -> Self::Source;
}

/// A folder on the disk.
#[cfg(not(target_family = "wasm"))]
#[derive(Debug, Clone)]
pub struct DiskFolder {
    location: String,
}

#[cfg(not(target_family = "wasm"))]
impl DiskFolder {
    /// The folder at `path`.
    #[must_use]
    pub fn new(path: impl Into<String>) -> Self {
        Self {
            location: path.into(),
        }
    }
}

#[cfg(not(target_family = "wasm"))]
impl ModelFolder for DiskFolder {
    type Source = weights_loader::DiskSource;

    fn location(&self) -> &str {
        &self.location
    }

    fn open(&self, path: &str) -> Self::Source {
        weights_loader::DiskSource::new(std::path::Path::new(&self.location).join(path))
    }
}

/// Reads files of a folder; with a manifest, each is checked against its SHA-256.
#[derive(Debug)]
pub struct Files<F> {
    folder: F,
    manifest: Option<Manifest>,
}

impl<F: ModelFolder> Files<F> {
    /// Reads the manifest, where there is one.
    pub(super) async fn open(folder: F) -> Result<Self> {
        let mut files = Self {
            folder,
            manifest: None,
        };
        if let Some(text) = files.optional_text("manifest.json").await? {
            files.manifest = Some(Manifest::parse("manifest.json", &text)?);
        }
        Ok(files)
    }

    /// The model's name: the manifest's, else the folder's.
    pub(super) fn name(&self) -> &str {
        match &self.manifest {
            Some(manifest) => &manifest.name,
            None => {
                let location = self.folder.location().trim_end_matches('/');
                location.rsplit('/').next().unwrap_or_default()
            }
        }
    }

    /// The guidance scale that suits the model, where its manifest tells one.
    pub(super) fn guidance_scale(&self) -> Option<f32> {
        self.manifest.as_ref()?.guidance_scale
    }

    /// What the manifest says of a file, where there is a manifest that lists it.
    fn expected(&self, path: &str) -> Option<&ManifestFile> {
        self.manifest
            .as_ref()
            .and_then(|manifest| manifest.get(path))
    }

    pub(super) async fn text(&self, path: &str) -> Result<String> {
        Ok(load_text(&self.folder.open(path), self.expected(path), MAX_TEXT_BYTES).await?)
    }

    /// A file that a folder may lack. A manifest that does not list it is taken at its word.
    async fn optional_text(&self, path: &str) -> Result<Option<String>> {
        if self
            .manifest
            .as_ref()
            .is_some_and(|manifest| manifest.get(path).is_none())
        {
            return Ok(None);
        }
        match self.text(path).await {
            Ok(text) => Ok(Some(text)),
            Err(Error::Load(error)) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(super) async fn tokenizer(&self) -> Result<ClipTokenizer> {
        let config = self
            .optional_text("tokenizer/tokenizer_config.json")
            .await?;
        if let Some(vocab) = self.optional_text("tokenizer/vocab.json").await? {
            let merges = self.text("tokenizer/merges.txt").await?;
            let special = self
                .optional_text("tokenizer/special_tokens_map.json")
                .await?;
            let config = config.ok_or_else(|| {
                Error::config("tokenizer/tokenizer_config.json", "the file is missing")
            })?;
            return ClipTokenizer::from_vocab_and_merges(
                &vocab,
                &merges,
                &config,
                special.as_deref(),
            );
        }
        let json = self.text("tokenizer/tokenizer.json").await?;
        ClipTokenizer::from_tokenizer_json(&json, config.as_deref())
    }

    /// The progress of these components' weights, with their bytes in all where every length is known.
    pub(super) async fn progress(&self, components: &[Component]) -> Result<ProgressSum> {
        Ok(ProgressSum::new(self.file_bytes(components).await?))
    }

    /// Bytes of these components' files with weights, where every length is known.
    pub(super) async fn file_bytes(&self, components: &[Component]) -> Result<Option<u64>> {
        let mut total = 0u64;
        for component in components {
            let path = component.weights_file();
            let known = match self.expected(path) {
                Some(file) => Some(file.length),
                None => self.folder.open(path).length().await?,
            };
            match known {
                // the lengths are what servers say
                Some(length) => total = total.saturating_add(length),
                None => return Ok(None),
            }
        }
        Ok(Some(total))
    }

    /// Streams a component's weights into `sink`; `sum` counts over all files.
    pub(super) async fn stream(
        &self,
        component: Component,
        sink: &mut impl TensorSink,
        sum: &mut ProgressSum,
        observer: &mut impl Observer,
    ) -> Result<()> {
        let path = component.weights_file();
        sum.start(path);
        load_safetensors(
            &self.folder.open(path),
            self.expected(path),
            sink,
            &mut |received| {
                let progress = sum.received(received);
                observer.notify(Event::Download {
                    received_bytes: progress.received_bytes,
                    total_bytes: progress.total_bytes,
                });
                if observer.is_cancelled() {
                    Err(LoadError::Cancelled)
                } else {
                    Ok(())
                }
            },
        )
        .await
        .map_err(|error| {
            if error == LoadError::Cancelled {
                Error::Cancelled
            } else {
                error.into()
            }
        })
    }
}
