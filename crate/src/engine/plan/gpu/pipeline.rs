//! Pipelines, made once for each source, and the bind groups of their launches.
//!
//! A bind group needs the layout of a pipeline but not the pipeline, so everything else is made while pipelines compile.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, OnceLock},
};

use super::{Gpu, backend, buffer::Range, lock};
use crate::{
    Error, Result,
    kernels::{Launch, Storage},
};

/// A pipeline, compiled or about to be, and the layout of its only bind group.
#[derive(Debug)]
pub(in crate::engine::plan) struct Pipeline {
    pub(super) label: &'static str,
    pub(super) source: Arc<str>,
    pub(super) entry_point: &'static str,
    pub(super) layout: backend::Layout,
    /// Or what is wrong with the source.
    pub(super) compiled: OnceLock<Result<backend::Compiled, String>>,
}

impl Pipeline {
    /// The compiled pipeline.
    pub(super) fn compiled(&self) -> Result<&backend::Compiled> {
        let why = match self.compiled.get() {
            Some(Ok(compiled)) => return Ok(compiled),
            Some(Err(why)) => why.clone(),
            None => "it is run before it is compiled".to_owned(),
        };
        Err(Error::Plan {
            network: self.label.to_owned(),
            why,
        })
    }
}

/// One dispatch with all that it needs.
#[derive(Debug)]
pub(in crate::engine::plan) struct BoundCall {
    pub(in crate::engine::plan) pipeline: Arc<Pipeline>,
    pub(super) bind_group: backend::BindGroup,
    pub(super) workgroups: [u32; 3],
}

/// Source, entry point, and how each binding is bound; the uniform of the parameters comes after them.
type PipelineKey = (Arc<str>, &'static str, Vec<u8>);

/// All pipelines of a device.
pub(super) type Pipelines = Mutex<HashMap<PipelineKey, Arc<Pipeline>>>;

impl Gpu {
    /// The pipeline of a launch whose operands are stored as `storages`, one for each binding. In a browser it compiles from now on;
    /// natively when [`Self::compiled`] asks for it.
    pub(in crate::engine::plan) fn pipeline(
        &self,
        launch: &Launch,
        storages: &[Storage],
    ) -> Arc<Pipeline> {
        let (pipeline, is_new) = self.known_pipeline(launch, storages);
        if is_new {
            self.device.request_pipeline(&pipeline);
        }
        pipeline
    }

    /// The same, ready to be run: for a caller that cannot wait. What is wrong with it is a fault of the device.
    pub(in crate::engine::plan) fn pipeline_now(
        &self,
        launch: &Launch,
        storages: &[Storage],
    ) -> Arc<Pipeline> {
        let (pipeline, _) = self.known_pipeline(launch, storages);
        pipeline
            .compiled
            .get_or_init(|| self.device.compile_now(&pipeline, &self.fault));
        if let Some(Err(why)) = pipeline.compiled.get() {
            self.fault.note_refused(why.clone());
        }
        pipeline
    }

    fn known_pipeline(&self, launch: &Launch, storages: &[Storage]) -> (Arc<Pipeline>, bool) {
        let source: Arc<str> = launch.source.as_str().into();
        let bound = storages.iter().map(|&storage| storage as u8).collect();
        let key = (Arc::clone(&source), launch.entry_point, bound);
        let mut is_new = false;
        let mut pipelines = lock(&self.pipelines);
        let pipeline = pipelines.entry(key).or_insert_with(|| {
            is_new = true;
            // never leaves its thread where GPU objects cannot
            #[allow(clippy::arc_with_non_send_sync)]
            Arc::new(Pipeline {
                label: launch.label,
                source,
                entry_point: launch.entry_point,
                layout: self.device.layout(launch.label, storages),
                compiled: OnceLock::new(),
            })
        });
        (Arc::clone(pipeline), is_new)
    }

    /// Waits until pipelines are compiled.
    ///
    /// # Errors
    /// [`Error::Plan`] for a source that does not compile, which is a bug; [`Error::DeviceLost`].
    pub(in crate::engine::plan) async fn compiled(
        &self,
        network: &str,
        pipelines: &[Arc<Pipeline>],
    ) -> Result<()> {
        self.device.compile(pipelines).await;
        self.check()?;
        let failed = |pipeline: &Pipeline| match pipeline.compiled.get() {
            Some(Err(why)) => Some(format!("{}: {why}", pipeline.label)),
            _ => None,
        };
        let Some(why) = pipelines.iter().find_map(|pipeline| failed(pipeline)) else {
            return Ok(());
        };
        // a driver that gave up may not the next time
        lock(&self.pipelines).retain(|_, pipeline| failed(pipeline).is_none());
        Err(Error::Plan {
            network: network.to_owned(),
            why,
        })
    }

    /// Pipelines made so far.
    #[must_use]
    pub fn pipelines(&self) -> usize {
        lock(&self.pipelines).len()
    }

    /// A call of a pipeline with the ranges of its operands and, after them, of its parameters.
    pub(in crate::engine::plan) fn bound_call(
        &self,
        pipeline: Arc<Pipeline>,
        ranges: &[Range<'_>],
        workgroups: [u32; 3],
    ) -> BoundCall {
        BoundCall {
            bind_group: self
                .device
                .bind_group(pipeline.label, &pipeline.layout, ranges),
            pipeline,
            workgroups,
        }
    }
}
