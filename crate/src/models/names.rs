//! Where published checkpoints spell a tensor otherwise than the modules do. The only place for such exceptions.
//!
//! Sources: diffusers `loaders/single_file_utils.py` and `models/attention_processor.py` (old attention names),
//! transformers 5, which saves CLIP without the `text_model.` prefix.

/// The part of a pipeline that a file belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Component {
    /// `text_encoder/`
    TextEncoder,
    /// `unet/`
    UNet,
    /// `vae/`
    Vae,
}

impl Component {
    /// All of them, in the order in which they run.
    pub const ALL: [Self; 3] = [Self::TextEncoder, Self::UNet, Self::Vae];

    /// Its file of weights in diffusers' folder layout.
    #[must_use]
    pub const fn weights_file(self) -> &'static str {
        match self {
            Self::TextEncoder => "text_encoder/model.safetensors",
            Self::UNet => "unet/diffusion_pytorch_model.safetensors",
            Self::Vae => "vae/diffusion_pytorch_model.safetensors",
        }
    }
}

/// What a tensor of a file is to us.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Name {
    /// A weight, by the name that the modules declare.
    Weight(String),
    /// Left out by rule: it has no part in making a picture from a prompt.
    Ignored,
}

/// The module name of the tensor `name` in a file of `component`.
#[must_use]
pub fn checkpoint_name(component: Component, name: &str) -> Name {
    match component {
        Component::TextEncoder => text_encoder(name),
        Component::UNet => Name::Weight(name.to_owned()),
        Component::Vae => vae(name),
    }
}

fn text_encoder(name: &str) -> Name {
    let bare = name.strip_prefix("text_model.").unwrap_or(name);
    // A counter 0..76, present or not and in any number format: positions are counted, never read from the file.
    if bare == "embeddings.position_ids" {
        return Name::Ignored;
    }
    Name::Weight(bare.to_owned())
}

fn vae(name: &str) -> Name {
    // Only the decoder's half is used.
    if name.starts_with("encoder.") || name.starts_with("quant_conv.") {
        return Name::Ignored;
    }
    let Some((path, leaf)) = name.rsplit_once('.') else {
        return Name::Weight(name.to_owned());
    };
    let renamed = [
        (".query", ".to_q"),
        (".key", ".to_k"),
        (".value", ".to_v"),
        (".proj_attn", ".to_out.0"),
    ]
    .into_iter()
    .find_map(|(old, new)| {
        path.strip_suffix(old)
            .map(|stem| format!("{stem}{new}.{leaf}"))
    });
    Name::Weight(renamed.unwrap_or_else(|| name.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weight(name: &str) -> Name {
        Name::Weight(name.to_owned())
    }

    #[test]
    fn text_prefix_may_be_there_or_not() {
        for name in [
            "text_model.final_layer_norm.weight",
            "final_layer_norm.weight",
        ] {
            assert_eq!(
                checkpoint_name(Component::TextEncoder, name),
                weight("final_layer_norm.weight")
            );
        }
        for name in [
            "text_model.embeddings.position_ids",
            "embeddings.position_ids",
        ] {
            assert_eq!(checkpoint_name(Component::TextEncoder, name), Name::Ignored);
        }
    }

    #[test]
    fn old_vae_attention_names() {
        let old = "decoder.mid_block.attentions.0.proj_attn.weight";
        assert_eq!(
            checkpoint_name(Component::Vae, old),
            weight("decoder.mid_block.attentions.0.to_out.0.weight")
        );
        assert_eq!(
            checkpoint_name(Component::Vae, "decoder.mid_block.attentions.0.key.bias"),
            weight("decoder.mid_block.attentions.0.to_k.bias")
        );
        assert_eq!(
            checkpoint_name(Component::Vae, "encoder.conv_in.weight"),
            Name::Ignored
        );
        assert_eq!(
            checkpoint_name(Component::Vae, "decoder.conv_in.weight"),
            weight("decoder.conv_in.weight")
        );
    }
}
