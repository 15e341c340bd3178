//! The decoder's output as RGBA bytes and as a PNG that says how it was made.

mod png;

use crate::{Error, Result, engine::check_finite};

/// A picture, 8 bits a channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// Width in pixels.
    pub width: usize,
    /// Height in pixels.
    pub height: usize,
    /// `width * height * 4` bytes, red green blue alpha, alpha 255.
    pub rgba: Vec<u8>,
}

impl Image {
    /// From the decoder's `[height, width, 3]` in -1..1. Rounds to the nearest, ties to even, as diffusers' `numpy_to_pil` does.
    ///
    /// # Errors
    /// [`Error::NotFinite`] when a value is NaN or infinite: such a picture must not be shown.
    pub fn from_decoder(width: usize, height: usize, values: &[f32]) -> Result<Self> {
        check_finite("vae.decoder", values)?;
        let rgba = values
            .chunks_exact(3)
            .flat_map(|pixel| {
                let byte = |value: f32| {
                    ((value / 2.0 + 0.5).clamp(0.0, 1.0) * 255.0).round_ties_even() as u8
                };
                [byte(pixel[0]), byte(pixel[1]), byte(pixel[2]), 255]
            })
            .collect();
        Ok(Self {
            width,
            height,
            rgba,
        })
    }

    /// A PNG with the text `parameters`, in the layout that AUTOMATIC1111's web UI writes and others read.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] when the picture has no pixel.
    pub fn to_png(&self, parameters: &str) -> Result<Vec<u8>> {
        if self.rgba.is_empty() {
            let rule = "cannot be written as PNG: it has no pixel";
            return Err(Error::invalid("image", rule));
        }
        // both kinds of text chunk end at a NUL
        let parameters = parameters.replace('\0', "\u{fffd}");
        let pixels = self.rgba.chunks_exact(4);
        let rgb: Vec<u8> = pixels
            .flat_map(|pixel| [pixel[0], pixel[1], pixel[2]])
            .collect();
        Ok(png::encode(
            self.width as u32,
            &rgb,
            "parameters",
            &parameters,
        ))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn rounds_to_nearest_even_and_clamps() {
        let image =
            Image::from_decoder(2, 1, &[-1.0, 0.0, 0.9998, 1.5, -1.5, 0.003_921_57]).unwrap();
        assert_eq!(image.rgba, [0, 128, 255, 255, 255, 0, 128, 255]);
    }

    #[test]
    fn a_nan_is_never_a_picture() {
        let error = Image::from_decoder(1, 1, &[0.0, f32::NAN, 0.0]).unwrap_err();
        assert_eq!(error.code(), "not-finite");
    }

    fn text_of(parameters: &str) -> (bool, String) {
        let image = Image {
            width: 1,
            height: 1,
            rgba: vec![1, 2, 3, 255],
        };
        let bytes = image.to_png(parameters).unwrap();
        let reader = ::png::Decoder::new(std::io::Cursor::new(bytes))
            .read_info()
            .unwrap();
        let info = reader.info();
        match info.utf8_text.first() {
            Some(text) => (true, text.get_text().unwrap()),
            None => (false, info.uncompressed_latin1_text[0].text.clone()),
        }
    }

    /// A decoder of others gives the pixels back, for pictures that every filter suits and sizes that fit nothing.
    #[test]
    fn pixels_come_back() {
        for (width, height) in [(1, 1), (3, 5), (64, 48), (31, 200)] {
            let mut noise = 1u32;
            let rgba: Vec<u8> = (0..width * height)
                .flat_map(|i| {
                    noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    let (x, y) = (i % width, i / width);
                    let flat = if x > y { 200 } else { 10 };
                    [(x * 5 + y * 3) as u8, flat, (noise >> 28) as u8, 255]
                })
                .collect();
            let image = Image {
                width,
                height,
                rgba: rgba.clone(),
            };
            let bytes = image.to_png("x").unwrap();
            let mut reader = ::png::Decoder::new(std::io::Cursor::new(bytes))
                .read_info()
                .unwrap();
            let mut rgb = vec![0; reader.output_buffer_size().unwrap()];
            reader.next_frame(&mut rgb).unwrap();
            let expected = rgba.chunks_exact(4).flat_map(|pixel| &pixel[..3]).copied();
            assert!(rgb.into_iter().eq(expected), "{width} x {height}");
        }
    }

    #[test]
    fn text_is_latin_1_for_ascii_and_utf_8_beyond() {
        assert_eq!(
            text_of("a cat\nSteps: 4"),
            (false, "a cat\nSteps: 4".to_owned())
        );
        assert_eq!(text_of("テスト"), (true, "テスト".to_owned()));
        assert_eq!(text_of("a\0b"), (true, "a\u{fffd}b".to_owned()));
    }
}
