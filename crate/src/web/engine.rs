//! The engine of this module: each is built with one. The burn engine's is for the CPU, or for WebGPU by way of burn-wgpu; the plan
//! engine's knows no burn and is a fraction of their size.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::{Error, Result};

/// What [`super::Session::load`] is given.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct LoadOptions {
    /// Address of the model's folder, absolute, with a slash at its end.
    pub(super) model: String,
    /// The engine; must be the one of this module.
    engine: String,
    /// Wishes for the plan, by the names of [`crate::models::choose::PlanWishes::NAMES`].
    #[serde(default)]
    plan: BTreeMap<String, String>,
    /// What an earlier load measured; for engines that measure.
    #[serde(default)]
    #[cfg_attr(not(feature = "plan"), allow(dead_code))]
    tuning: Option<Measured>,
}

/// What was measured on an adapter.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[cfg_attr(not(feature = "plan"), allow(dead_code))]
struct Measured {
    /// The adapter's name; on another one it counts for nothing.
    adapter: String,
    /// As [`crate::kernels::Tuning::text`] wrote it.
    text: String,
}

impl LoadOptions {
    fn check_engine(&self) -> Result<()> {
        if self.engine == module::ENGINE {
            return Ok(());
        }
        Err(Error::invalid(
            "engine",
            format!(
                "must be {} in this module, and is {:?}",
                module::ENGINE,
                self.engine
            ),
        ))
    }

    #[cfg(not(feature = "plan"))]
    fn check_unplanned(&self) -> Result<()> {
        match self.plan.keys().next() {
            Some(name) => Err(Error::invalid(
                name,
                "can only be chosen with engine=\"webgpu\", which plans its memory",
            )),
            None => Ok(()),
        }
    }
}

pub(super) use module::ModuleStages;
#[cfg(feature = "plan")]
pub(super) use module::{LIMITS, read_wishes};

/// The engine on a new device where it has one, and the adapter's name.
///
/// # Errors
/// [`Error::InvalidArgument`] for another engine or for wishes that it has no use for; [`Error::NoWebGpu`].
pub(super) async fn open(options: &LoadOptions) -> Result<(module::Engine, Option<String>)> {
    options.check_engine()?;
    #[cfg(not(feature = "plan"))]
    options.check_unplanned()?;
    module::open(options).await
}

#[cfg(feature = "plan")]
mod module {
    use std::{collections::BTreeMap, sync::Arc};

    use super::{LoadOptions, Result};
    use crate::{
        engine::plan::Gpu,
        kernels::Limits,
        models::choose::PlanWishes,
        pipeline::{PlanEngine, PlanStages},
        web::fetch_folder::FetchFolder,
    };

    pub(super) const ENGINE: &str = "webgpu";
    pub(super) type Engine = PlanEngine;
    pub(in crate::web) type ModuleStages = PlanStages<FetchFolder>;

    /// What the device is asked for: what every device has, so that a plan made without one holds.
    pub(in crate::web) const LIMITS: Limits = Limits::DEFAULT;

    /// Wishes by their names.
    pub(in crate::web) fn read_wishes(texts: &BTreeMap<String, String>) -> Result<PlanWishes> {
        let mut wishes = PlanWishes::default();
        for (name, value) in texts {
            wishes.set(name, value)?;
        }
        Ok(wishes)
    }

    pub(super) async fn open(options: &LoadOptions) -> Result<(Engine, Option<String>)> {
        let wishes = read_wishes(&options.plan)?;
        let gpu = Gpu::request(&LIMITS).await?;
        let adapter = gpu.adapter().to_owned();
        // never leaves its thread where GPU objects cannot
        #[allow(clippy::arc_with_non_send_sync)]
        let gpu = Arc::new(gpu);
        let engine = PlanEngine::new(gpu, wishes);
        let known = options.tuning.as_ref();
        let engine = match known.filter(|known| known.adapter == adapter) {
            Some(known) => engine.tuned(&known.text),
            None => engine,
        };
        Ok((engine, Some(adapter)))
    }
}

#[cfg(all(feature = "burn-wgpu", not(feature = "plan")))]
mod module {
    use super::{LoadOptions, Result};
    use crate::{
        engine::{burn::BurnEngine, burn_wgpu},
        pipeline::EagerStages,
    };

    pub(super) const ENGINE: &str = "burn";
    pub(super) type Engine = BurnEngine;
    pub(in crate::web) type ModuleStages = EagerStages<BurnEngine>;

    pub(super) async fn open(_options: &LoadOptions) -> Result<(Engine, Option<String>)> {
        let (engine, adapter) = burn_wgpu::request().await?;
        Ok((engine, Some(adapter)))
    }
}

#[cfg(not(any(feature = "burn-wgpu", feature = "plan")))]
mod module {
    use super::{LoadOptions, Result};
    use crate::{engine::burn::BurnEngine, pipeline::EagerStages};

    pub(super) const ENGINE: &str = "cpu";
    pub(super) type Engine = BurnEngine;
    pub(in crate::web) type ModuleStages = EagerStages<BurnEngine>;

    pub(super) async fn open(_options: &LoadOptions) -> Result<(Engine, Option<String>)> {
        Ok((BurnEngine::cpu(), None))
    }
}
