//! A diffusers folder to a [`StableDiffusionPipeline`].
//!
//! Order: the small text files, then the networks are built from their configs (which declares every weight and so gives the
//! memory they need), then the weights stream in, one file after another. Nothing large is fetched before the small files are understood.

use weights_loader::{
    ByteSource, LoadError, Manifest, ManifestFile, ProgressSum, load_safetensors, load_text,
};

use super::StableDiffusionPipeline;
use crate::{
    Error, Result,
    config::{ClipTextConfig, UNetConfig, VaeConfig, check_model_index},
    engine::Eager,
    models::{
        autoencoder_kl::AutoencoderKlDecoder, clip_text::ClipTextModel, names::Component,
        unet_2d_condition::UNet2DConditionModel, weights::Weights,
    },
    observer::{Event, Observer, checkpoint},
    schedulers::SchedulerConfig,
    tokenizer::ClipTokenizer,
};

/// Largest text file that is read: a vocabulary has about 1 MB.
const MAX_TEXT_BYTES: u64 = 32 << 20;

/// Most memory that weights may take where addresses have 32 bits: the rest of the 4 GiB is for activations.
const MAX_WEIGHT_BYTES: Option<u64> = if cfg!(target_pointer_width = "32") {
    Some(3 << 30)
} else {
    None
};

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
struct Files<'a, F> {
    folder: &'a F,
    manifest: Option<Manifest>,
}

impl<'a, F: ModelFolder> Files<'a, F> {
    async fn open(folder: &'a F) -> Result<Self> {
        let unchecked = Self {
            folder,
            manifest: None,
        };
        let manifest = match unchecked.optional_text("manifest.json").await? {
            Some(text) => Some(Manifest::parse("manifest.json", &text)?),
            None => None,
        };
        Ok(Self { folder, manifest })
    }

    /// What the manifest says of a file, where there is a manifest that lists it.
    fn expected(&self, path: &str) -> Option<&ManifestFile> {
        self.manifest
            .as_ref()
            .and_then(|manifest| manifest.get(path))
    }

    async fn text(&self, path: &str) -> Result<String> {
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

    async fn tokenizer(&self) -> Result<ClipTokenizer> {
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

    /// Bytes of all weight files, where every length is known.
    async fn total_bytes(&self, paths: &[&str]) -> Result<Option<u64>> {
        let mut total = 0u64;
        for path in paths {
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
}

/// Streams one weights file into what was declared for it; `sum` counts over all files.
async fn download<F: ModelFolder, E: Eager>(
    sum: &mut ProgressSum,
    files: &Files<'_, F>,
    path: &str,
    component: Component,
    weights: Weights<'_, E>,
    observer: &mut impl Observer,
) -> Result<()> {
    let mut sink = weights.into_sink(component, path);
    sum.start(path);
    load_safetensors(
        &files.folder.open(path),
        files.expected(path),
        &mut sink,
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

impl<E: Eager> StableDiffusionPipeline<E> {
    /// Loads the model in `folder` onto `engine`.
    ///
    /// # Errors
    /// [`Error::Config`] and [`Error::Load`] name the file and say what to do; [`Error::OutOfMemory`] before any weight is
    /// fetched when the weights cannot fit; [`Error::Cancelled`].
    pub async fn load<F: ModelFolder>(
        engine: E,
        folder: &F,
        observer: &mut impl Observer,
    ) -> Result<Self> {
        const TEXT_ENCODER: &str = "text_encoder/model.safetensors";
        const UNET: &str = "unet/diffusion_pytorch_model.safetensors";
        const VAE: &str = "vae/diffusion_pytorch_model.safetensors";

        let files = Files::open(folder).await?;
        check_model_index(&files.text("model_index.json").await?)?;
        let scheduler_config =
            SchedulerConfig::from_json(&files.text("scheduler/scheduler_config.json").await?)?
                .for_stable_diffusion();
        let text_config =
            ClipTextConfig::from_json(&files.text("text_encoder/config.json").await?)?;
        let unet_config = UNetConfig::from_json(&files.text("unet/config.json").await?)?;
        let vae_config = VaeConfig::from_json(&files.text("vae/config.json").await?)?;
        check_compatible(&text_config, &unet_config, &vae_config)?;
        let tokenizer = files.tokenizer().await?;
        if tokenizer.model_max_length() > text_config.max_position_embeddings {
            return Err(Error::config(
                "tokenizer/tokenizer_config.json",
                "model_max_length exceeds the text encoder's positions",
            ));
        }

        if tokenizer.largest_id() as usize >= text_config.vocab_size {
            let why = format!(
                "its largest token id is {}, and the text encoder has {} embeddings (vocab_size)",
                tokenizer.largest_id(),
                text_config.vocab_size
            );
            return Err(Error::config("tokenizer/vocab.json", why));
        }

        let (text_weights, unet_weights, vae_weights) = (
            Weights::new(&engine),
            Weights::new(&engine),
            Weights::new(&engine),
        );
        let text_encoder = ClipTextModel::new(&text_weights, &text_config);
        let unet = UNet2DConditionModel::new(&unet_weights, &unet_config);
        let vae = AutoencoderKlDecoder::new(&vae_weights, &vae_config);
        let weight_bytes = engine.weight_bytes(
            text_weights.elements() + unet_weights.elements() + vae_weights.elements(),
        );
        if let Some(budget_bytes) = MAX_WEIGHT_BYTES
            && weight_bytes > budget_bytes
        {
            return Err(Error::OutOfMemory {
                needed_bytes: weight_bytes,
                budget_bytes,
            });
        }

        let mut sum = ProgressSum::new(files.total_bytes(&[TEXT_ENCODER, UNET, VAE]).await?);
        for (path, component, weights) in [
            (TEXT_ENCODER, Component::TextEncoder, text_weights),
            (UNET, Component::UNet, unet_weights),
            (VAE, Component::Vae, vae_weights),
        ] {
            download(&mut sum, &files, path, component, weights, observer).await?;
        }
        checkpoint(observer, Event::Prepare).await?;

        let name = match &files.manifest {
            Some(manifest) => manifest.name.clone(),
            None => folder
                .location()
                .trim_end_matches('/')
                .rsplit('/')
                .next()
                .unwrap_or_default()
                .to_owned(),
        };
        Ok(Self {
            engine,
            name,
            tokenizer,
            text_encoder,
            unet,
            unet_config,
            vae,
            vae_config,
            scheduler_config,
            weight_bytes,
        })
    }
}

/// The three networks must fit each other.
fn check_compatible(text: &ClipTextConfig, unet: &UNetConfig, vae: &VaeConfig) -> Result<()> {
    if unet.cross_attention_dim != text.hidden_size {
        let why = format!(
            "cross_attention_dim is {}, and the text encoder's hidden_size is {}",
            unet.cross_attention_dim, text.hidden_size
        );
        return Err(Error::config("unet/config.json", why));
    }
    if unet.in_channels != vae.latent_channels || unet.out_channels != vae.latent_channels {
        let why = format!(
            "in_channels {} and out_channels {} must equal the VAE's {} latent channels; inpainting and image-to-image models are not supported",
            unet.in_channels, unet.out_channels, vae.latent_channels
        );
        return Err(Error::config("unet/config.json", why));
    }
    Ok(())
}
