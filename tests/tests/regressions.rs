//! Model folders that are damaged or made to do harm, and settings at the edge: each ends in an error with a stable code and a
//! sentence, never in a panic, a hang, or an allocation on a stranger's word.
#![cfg(all(feature = "burn", not(target_family = "wasm")))]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

use latent_canvas::{
    Error,
    engine::burn::BurnEngine,
    observer::Unobserved,
    pipeline::{
        self, EagerStages, GenerateOptions, Generated, StableDiffusionPipeline, folder::DiskFolder,
    },
    schedulers::SchedulerKind,
};
use serde_json::{Value, json};

const SCHEDULER: &str = "scheduler/scheduler_config.json";
const TEXT: &str = "text_encoder/config.json";
const UNET: &str = "unet/config.json";
const VAE: &str = "vae/config.json";
const TOKENIZER: &str = "tokenizer/tokenizer_config.json";
const TEXT_WEIGHTS: &str = "text_encoder/model.safetensors";
const UNET_WEIGHTS: &str = "unet/diffusion_pytorch_model.safetensors";
const VAE_WEIGHTS: &str = "vae/diffusion_pytorch_model.safetensors";

/// Longer than any refusal takes, shorter than any loop that a hostile number asks for.
const SOON: Duration = Duration::from_secs(20);

type Pipeline = StableDiffusionPipeline<EagerStages<BurnEngine>>;

/// A copy of the tiny model, to be damaged; removed when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "latent-canvas-{}-{}",
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        );
        let folder = Self(std::env::temp_dir().join(name));
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/tiny-model");
        for path in [
            "model_index.json",
            SCHEDULER,
            TEXT,
            UNET,
            VAE,
            TOKENIZER,
            "tokenizer/vocab.json",
            "tokenizer/merges.txt",
            TEXT_WEIGHTS,
            UNET_WEIGHTS,
            VAE_WEIGHTS,
        ] {
            let to = folder.0.join(path);
            fs::create_dir_all(to.parent().unwrap()).unwrap();
            fs::write(to, fs::read(source.join(path)).unwrap()).unwrap();
        }
        folder
    }

    fn read(&self, path: &str) -> Vec<u8> {
        fs::read(self.0.join(path)).unwrap()
    }

    fn write(&self, path: &str, bytes: impl AsRef<[u8]>) {
        fs::write(self.0.join(path), bytes).unwrap();
    }

    /// The folder with other values in one of its JSON files; null takes a key away.
    fn with(path: &str, changes: &Value) -> Self {
        let folder = Self::new();
        let mut json: Value = serde_json::from_slice(&folder.read(path)).unwrap();
        let object = json.as_object_mut().unwrap();
        for (key, value) in changes.as_object().unwrap() {
            object.insert(key.clone(), value.clone());
        }
        folder.write(path, json.to_string());
        folder
    }

    fn load(&self) -> Result<Pipeline, Error> {
        let folder = DiskFolder::new(self.0.display().to_string());
        let start = Instant::now();
        let loaded = pollster::block_on(pipeline::load(BurnEngine::cpu(), folder, &mut Unobserved));
        assert!(start.elapsed() < SOON, "took {:?}", start.elapsed());
        loaded
    }

    fn refused(&self, code: &str, says: &str) {
        let error = self.load().err().expect("the folder is refused");
        let sentence = error.sentence();
        assert_eq!(error.code(), code, "{sentence}");
        assert!(sentence.contains(says), "{says:?} is not in: {sentence}");
        assert!(
            sentence.chars().count() < 500 && sentence.ends_with('.'),
            "{sentence}"
        );
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn draw(
    pipeline: &mut Pipeline,
    changes: impl FnOnce(&mut GenerateOptions),
) -> Result<Generated, Error> {
    let mut options = GenerateOptions {
        prompt: "a frog".to_owned(),
        negative_prompt: String::new(),
        seed: 1,
        num_inference_steps: 1,
        guidance_scale: 2.0,
        width: 16,
        height: 16,
        scheduler: Some(SchedulerKind::Euler),
    };
    changes(&mut options);
    pollster::block_on(pipeline.generate(&options, &mut Unobserved))
}

#[test]
fn the_copy_itself_works() {
    let mut pipeline = Folder::new().load().unwrap();
    assert!(draw(&mut pipeline, |_| ()).is_ok());
}

/// Each number that a config may hold, as nothing, as far too much, and as something else.
#[test]
fn numbers_of_the_configs() {
    let unbounded: &[(&str, &[&str])] = &[
        (
            TEXT,
            &[
                "hidden_size",
                "intermediate_size",
                "num_hidden_layers",
                "num_attention_heads",
                "max_position_embeddings",
                "vocab_size",
            ],
        ),
        (
            UNET,
            &[
                "layers_per_block",
                "attention_head_dim",
                "transformer_layers_per_block",
                "cross_attention_dim",
                "norm_num_groups",
                "in_channels",
                "out_channels",
                "sample_size",
            ],
        ),
        (
            VAE,
            &["layers_per_block", "latent_channels", "norm_num_groups"],
        ),
    ];
    for (path, keys) in unbounded {
        for key in *keys {
            for value in [
                json!(0),
                json!(-1),
                json!(1e9 as u64),
                json!(1e12 as u64),
                json!(u64::MAX),
                json!(1.5),
                json!("8"),
                json!({}),
            ] {
                Folder::with(path, &json!({ *key: value })).refused("config", key);
            }
        }
    }
    for (path, key, value) in [
        (UNET, "attention_head_dim", json!(3)),
        (UNET, "norm_num_groups", json!(7)),
        (UNET, "norm_eps", json!(-1.0)),
        (UNET, "downsample_padding", json!(0)),
        (UNET, "downsample_padding", json!(1_000_000_000)),
        (UNET, "layers_per_block", json!([2, 1_000_000_000])),
        (UNET, "block_out_channels", json!([])),
        (UNET, "block_out_channels", json!([1_000_000_000, 64])),
        (UNET, "block_out_channels", json!([0, 64])),
        (UNET, "block_out_channels", json!(vec![32; 100_000])),
        (UNET, "down_block_types", json!("x".repeat(1 << 20))),
        (UNET, "act_fn", json!("x".repeat(1 << 20))),
        (VAE, "block_out_channels", json!([])),
        (VAE, "block_out_channels", json!([32, 1_000_000_000])),
        (VAE, "scaling_factor", json!(0)),
        (TEXT, "num_attention_heads", json!(3)),
        (TEXT, "layer_norm_eps", json!(-1.0)),
    ] {
        Folder::with(path, &json!({ key: value })).refused("config", key_said(key));
    }
    // so many levels that a picture's side would not fit into a number
    let levels = json!({ "block_out_channels": vec![32; 70], "up_block_types": vec!["UpDecoderBlock2D"; 70] });
    Folder::with(VAE, &levels).refused("config", "block_out_channels");
}

/// How a refusal speaks of a key; where several keys are at odds it may name what they stand for.
fn key_said(key: &str) -> &str {
    match key {
        "attention_head_dim" => "heads",
        "norm_num_groups" => "groups",
        other => other,
    }
}

#[test]
fn numbers_of_the_scheduler() {
    for (key, value) in [
        ("num_train_timesteps", json!(0)),
        ("num_train_timesteps", json!(1_000_000_000)),
        ("num_train_timesteps", json!("1000")),
        ("beta_start", json!(0)),
        ("beta_start", json!("NaN")),
        ("beta_end", json!(2)),
        ("trained_betas", json!([0.5])),
        ("steps_offset", json!(-1)),
        ("prediction_type", json!("x".repeat(1 << 20))),
    ] {
        Folder::with(SCHEDULER, &json!({ key: value })).refused("config", key);
    }
    // few timesteps leave few steps
    let mut pipeline = Folder::with(SCHEDULER, &json!({ "num_train_timesteps": 2 }))
        .load()
        .unwrap();
    let error = draw(&mut pipeline, |options| options.num_inference_steps = 3).unwrap_err();
    assert_eq!(error.code(), "invalid-argument", "{error}");
}

#[test]
fn files_that_are_not_json() {
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let deep_object = format!("{}1{}", "{\"a\":".repeat(100_000), "}".repeat(100_000));
    for path in ["model_index.json", SCHEDULER, TEXT, UNET, VAE, TOKENIZER] {
        for text in ["", "null", "[]", "NaN", "{\"a\": NaN}", &deep, &deep_object] {
            let folder = Folder::new();
            folder.write(path, text);
            folder.refused("config", path);
        }
        let folder = Folder::new();
        folder.write(path, [0xff, 0xfe, 0x00]);
        folder.refused("text", "UTF-8");
        folder.write(path, vec![b' '; (32 << 20) + 1]);
        folder.refused("text", "more than");
    }
}

#[test]
fn tokenizers() {
    // ids for which the text encoder has no embedding
    Folder::with(TEXT, &json!({ "vocab_size": 1000 })).refused("config", "vocab_size");
    Folder::with("tokenizer/vocab.json", &json!({ "zebra": u32::MAX }))
        .refused("config", "4294967295");
    let many: Vec<String> = (0..50_000).map(|i| format!("<{i}>")).collect();
    Folder::with(TOKENIZER, &json!({ "additional_special_tokens": many }))
        .refused("config", "added tokens");
    for (key, value) in [
        ("model_max_length", json!(1e30)),
        ("model_max_length", json!(2)),
        ("model_max_length", json!(78)),
        ("model_max_length", json!("77")),
        ("eos_token", json!("<|nothing|>")),
        ("eos_token", json!(7)),
        ("bos_token", json!("")),
    ] {
        Folder::with(TOKENIZER, &json!({ key: value })).refused("config", key);
    }
    let vocab = "tokenizer/vocab.json";
    Folder::with(vocab, &json!({ "zebra": -1 })).refused("config", vocab);
    Folder::with(vocab, &json!({ "zebra": "1" })).refused("config", vocab);
    let folder = Folder::new();
    folder.write(
        "tokenizer/merges.txt",
        "a b\n".repeat(3) + &"x".repeat(1 << 20),
    );
    folder.refused("config", "merges.txt");
    folder.write("tokenizer/merges.txt", "nosuch token\n");
    folder.refused("config", "nosuch token");
    // a merge that gives the token it began with: every merge still takes a symbol away
    let folder = Folder::with(vocab, &json!({ "a": 320, "aa": 320 }));
    folder.write("tokenizer/merges.txt", "a a\n");
    let mut pipeline = folder.load().unwrap();
    assert!(draw(&mut pipeline, |options| options.prompt = "a".repeat(10_000)).is_ok());
    // the shortest prompt there can be: start, one token, end
    let mut pipeline = Folder::with(TOKENIZER, &json!({ "model_max_length": 3 }))
        .load()
        .unwrap();
    let generated = draw(&mut pipeline, |_| ()).unwrap();
    assert_eq!(generated.prompt_encoding.input_ids.len(), 3);
    assert_eq!(
        generated.prompt_encoding.truncated_text.as_deref(),
        Some("frog")
    );
}

/// The weights with the bytes of their data all set to `byte`; the header stays.
fn filled(bytes: &[u8], byte: u8) -> Vec<u8> {
    let header = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let mut bytes = bytes.to_vec();
    bytes[header..].fill(byte);
    bytes
}

#[test]
fn weights() {
    for (path, module) in [
        (TEXT_WEIGHTS, "text_encoder"),
        (UNET_WEIGHTS, "unet"),
        (VAE_WEIGHTS, "vae"),
    ] {
        let folder = Folder::new();
        let good = folder.read(path);
        // every value NaN
        folder.write(path, filled(&good, 0xff));
        let error = draw(&mut folder.load().unwrap(), |_| ()).unwrap_err();
        assert_eq!(error.code(), "not-finite");
        assert!(error.sentence().contains(module), "{error}");
        folder.write(path, b"");
        folder.refused("header", path);
        folder.write(path, &good[..good.len() / 2]);
        folder.refused("truncated", path);
        folder.write(path, [&good[..], b"more"].concat());
        folder.refused("truncated", path);
        folder.write(path, [&u64::MAX.to_le_bytes()[..], &good[8..]].concat());
        folder.refused("header", path);
        let no_tensors = b"{}      ";
        folder.write(path, [&8u64.to_le_bytes()[..], no_tensors].concat());
        folder.refused("missing-tensor", path);
        // one name of a megabyte, and one empty tensor with a million axes
        let header = json!({ "x".repeat(1 << 20): { "dtype": "F32", "shape": vec![0; 1 << 20], "data_offsets": [0, 0] } });
        let header = header.to_string();
        folder.write(
            path,
            [&(header.len() as u64).to_le_bytes()[..], header.as_bytes()].concat(),
        );
        folder.refused("missing-tensor", path);
    }
    // all zero: a picture of one colour, or a refusal, but never a panic
    let folder = Folder::new();
    folder.write(UNET_WEIGHTS, filled(&folder.read(UNET_WEIGHTS), 0));
    assert!(draw(&mut folder.load().unwrap(), |_| ()).is_ok());
}

#[test]
fn manifests() {
    let good = |changes: Value| {
        let mut entry = json!({ "path": UNET, "length": 1, "sha256": "0".repeat(64) });
        for (key, value) in changes.as_object().unwrap() {
            entry[key] = value.clone();
        }
        json!({ "name": "x", "files": [entry] }).to_string()
    };
    for (text, code, says) in [
        ("[".repeat(100_000), "text", "manifest"),
        (
            good(json!({ "path": "../unet/config.json" })),
            "text",
            "path",
        ),
        (good(json!({ "path": "/etc/passwd" })), "text", "path"),
        (
            good(json!({ "path": "http://elsewhere/x" })),
            "text",
            "path",
        ),
        (good(json!({ "length": -1 })), "text", "manifest"),
        (good(json!({ "length": 1e30 })), "text", "manifest"),
        (good(json!({ "sha256": "x" })), "text", "checksum"),
        (good(json!({})), "truncated", UNET),
        (good(json!({ "length": u64::MAX })), "truncated", UNET),
    ] {
        let folder = Folder::new();
        folder.write("manifest.json", text);
        folder.refused(code, says);
    }
}

#[test]
fn settings_at_the_edge() {
    let mut pipeline = Folder::new().load().unwrap();
    for guidance_scale in [-0.0, 0.0, 1.0, 1.000_000_1, 1000.0] {
        assert!(
            draw(&mut pipeline, |options| options.guidance_scale =
                guidance_scale)
            .is_ok()
        );
    }
    for guidance_scale in [
        f32::INFINITY,
        f32::MAX,
        1000.1,
        -f32::MIN_POSITIVE,
        f32::NAN,
    ] {
        let error = draw(&mut pipeline, |options| {
            options.guidance_scale = guidance_scale
        });
        assert_eq!(error.unwrap_err().code(), "invalid-argument");
    }
    for seed in [0, u32::MAX] {
        assert!(draw(&mut pipeline, |options| options.seed = seed).is_ok());
    }
    for (width, height) in [(2, 2), (2, 64), (64, 2), (6, 10)] {
        let generated = draw(&mut pipeline, |options| {
            (options.width, options.height) = (width, height);
        });
        assert_eq!(generated.unwrap().image.rgba.len(), width * height * 4);
    }
    for kind in SchedulerKind::ALL {
        let generated = draw(&mut pipeline, |options| {
            (options.width, options.height) = (2, 2);
            options.num_inference_steps = 1000;
            options.scheduler = Some(kind);
        });
        assert!(generated.is_ok(), "{kind}: {:?}", generated.err());
    }
}

#[test]
fn any_text_is_a_prompt() {
    let mut pipeline = Folder::new().load().unwrap();
    for prompt in [
        "red apple ".repeat(100_000),
        "a".repeat(1_000_000),
        "(".repeat(10_000),
        "<|endoftext|>".repeat(100_000),
        "\0".to_owned(),
        "e\u{301}".repeat(50_000),
        "\u{1f34e}\u{1f468}\u{200d}\u{1f469}".repeat(1000),
        "\u{202e}\u{5ea}\u{5e4}\u{5d5}\u{5d7}".to_owned(),
    ] {
        let start = Instant::now();
        let generated = draw(&mut pipeline, |options| {
            options.negative_prompt.clone_from(&prompt);
            options.prompt.clone_from(&prompt);
        })
        .unwrap();
        assert_eq!(generated.prompt_encoding.input_ids.len(), 77);
        assert!(generated.image.to_png(&generated.parameters).is_ok());
        assert!(start.elapsed() < SOON, "took {:?}", start.elapsed());
    }
}
