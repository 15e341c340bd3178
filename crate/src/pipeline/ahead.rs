//! What a picture will take, told before a weight is fetched: from the small files of a model alone.

use serde::Serialize;

use super::{folder::ModelFolder, load::Description};
use crate::{
    Result,
    engine::plan::{MemoryPlan, Residency},
    kernels::Limits,
    models::{
        choose::{PlanSubject, PlanWishes, choose_plan},
        names::Component,
    },
    schedulers::{self, SchedulerKind},
};

/// The picture that is to be planned; what is not set is the model's own.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct PictureWishes {
    /// Width in pixels.
    pub width: Option<usize>,
    /// Height in pixels.
    pub height: Option<usize>,
    /// Denoising steps.
    pub num_inference_steps: usize,
    /// Weight of the prompt; 1 and less leave guidance out.
    pub guidance_scale: Option<f32>,
    /// The sampler.
    pub scheduler: Option<SchedulerKind>,
}

/// The answer: what [`super::PlanStages`] will do for the same picture and wishes, to the byte.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MemoryAhead {
    /// The model's name.
    pub name: String,
    /// Width in pixels.
    pub width: usize,
    /// Height in pixels.
    pub height: usize,
    /// Calls of the UNet.
    pub calls: usize,
    /// Whether it can be drawn.
    pub fits: bool,
    /// What is in GPU memory at the same time; none where it does not fit.
    pub residency: Option<Residency>,
    /// GPU memory at its peak; where it does not fit, the least there is.
    pub peak_bytes: u64,
    /// Why, as a sentence.
    pub reason: String,
    /// What to change, as a sentence; empty where it fits.
    pub remedy: String,
    /// Bytes of the files with weights, which are fetched once (again for each picture where the stages take turns); none where the server
    /// does not tell.
    pub download_bytes: Option<u64>,
    /// The plan.
    pub plan: MemoryPlan,
}

/// Plans a picture of the model in `folder` under the limits of the engine's device.
///
/// # Errors
/// [`crate::Error::Config`] and [`crate::Error::Load`] name the file; [`crate::Error::InvalidArgument`] names the setting.
pub async fn plan_ahead<F: ModelFolder>(
    folder: F,
    picture: &PictureWishes,
    wishes: &PlanWishes,
    limits: &Limits,
) -> Result<MemoryAhead> {
    let described = Description::read(folder).await?;
    let own = described.configs.default_size();
    let (width, height) = (picture.width.unwrap_or(own), picture.height.unwrap_or(own));
    let kind = match picture.scheduler {
        Some(kind) => kind,
        None => described.scheduler_config.kind()?,
    };
    let scheduler = schedulers::create(
        kind,
        &described.scheduler_config,
        picture.num_inference_steps,
    )?;
    let calls = scheduler.timesteps().len();
    let guidance_scale = picture.guidance_scale.unwrap_or(described.guidance_scale());
    let subject = PlanSubject {
        width,
        height,
        guided: guidance_scale > 1.0,
        steps: calls,
    };
    let (plan, verdict) = choose_plan(&described.configs, &subject, wishes, limits)?;
    Ok(MemoryAhead {
        name: described.files.name().to_owned(),
        width,
        height,
        calls,
        fits: verdict.fits,
        residency: verdict.residency,
        peak_bytes: verdict.peak_bytes,
        reason: verdict.reason,
        remedy: verdict.remedy,
        download_bytes: described.files.file_bytes(&Component::ALL).await?,
        plan: plan.memory,
    })
}
