//! The rows for programs that are not Rust: what they compute, on which inputs, with which weights.

use std::{fs, path::Path};

use latent_canvas_bench::rows::{Row, TIMESTEP, Task};
use serde_json::{Value, json};

/// Writes `rows.json`, `NAME.inputs` (float32, one input after another, channels last) and, for single operations, `NAME.safetensors`.
pub(crate) fn export(rows: &[Row], folder: &Path) {
    fs::create_dir_all(folder).unwrap();
    let rows: Vec<Value> = rows.iter().map(|row| describe(row, folder)).collect();
    let text = serde_json::to_string_pretty(&rows).unwrap();
    fs::write(folder.join("rows.json"), text).unwrap();
}

fn describe(row: &Row, folder: &Path) -> Value {
    let job = row.job(&config(row)).unwrap();
    let inputs = job.inputs();
    let values: Vec<u8> = inputs
        .iter()
        .flat_map(|input| &input.values)
        .flat_map(|value| value.to_le_bytes())
        .collect();
    fs::write(folder.join(format!("{}.inputs", row.name)), values).unwrap();
    let weights = row.made_weights();
    let made = !weights.is_empty();
    if made {
        fs::write(folder.join(format!("{}.safetensors", row.name)), weights).unwrap();
    }
    let inputs: Vec<Value> = inputs
        .iter()
        .map(|input| {
            let shape = input.shape;
            json!({
                "name": input.name,
                "shape": [shape.batch, shape.height, shape.width, shape.channels],
                "image": shape.height > 1,
            })
        })
        .collect();
    json!({
        "name": row.name,
        "title": row.title,
        "task": task(row.task),
        "folder": row.folder,
        "weightsFile": row.folder.map(|_| Row::WEIGHTS_FILE),
        "madeWeights": made,
        "timestep": TIMESTEP,
        "inputs": inputs,
        "macs": job.macs().unwrap(),
    })
}

/// The text of the network's config; empty for a single operation.
pub(crate) fn config(row: &Row) -> String {
    row.folder.map_or_else(String::new, |folder| {
        fs::read_to_string(Path::new(folder).join("config.json")).unwrap()
    })
}

/// The weights of a row.
pub(crate) fn weights(row: &Row) -> Vec<u8> {
    row.folder.map_or_else(
        || row.made_weights(),
        |folder| fs::read(Path::new(folder).join(Row::WEIGHTS_FILE)).unwrap(),
    )
}

fn task(task: Task) -> Value {
    match task {
        Task::Conv2d { side, channels } => {
            json!({ "kind": "conv2d", "side": side, "channels": channels })
        }
        Task::Linear { rows, k, n } => json!({ "kind": "linear", "rows": rows, "k": k, "n": n }),
        Task::Attention {
            tokens,
            num_heads,
            head_dim,
        } => {
            json!({ "kind": "attention", "tokens": tokens, "num_heads": num_heads, "head_dim": head_dim })
        }
        Task::UNet { batch, side } => json!({ "kind": "unet", "batch": batch, "side": side }),
        Task::Vae { batch, side } => json!({ "kind": "vae", "batch": batch, "side": side }),
    }
}
