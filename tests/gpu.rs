//! Runs launches on a native adapter, as the replay does: one arena, everything in it bound `read_write` with its exact size.

use std::{
    collections::HashMap,
    sync::{Mutex, OnceLock},
    time::{Duration, Instant},
};

use latent_canvas::kernels::{Launch, Operand, Storage};
use wgpu::util::DeviceExt as _;

const NO_ADAPTER: &str = "There is no Vulkan adapter, so the GPU kernels cannot be tested. \
    Install a driver; without a GPU, mesa-vulkan-drivers brings the software adapter lavapipe.";
/// Between two operands in the arena: a kernel that writes past its binding is found out.
const GUARD: u8 = 0xa5;

/// A device with WebGPU's default limits.
#[derive(Debug)]
pub struct Gpu {
    device: wgpu::Device,
    queue: wgpu::Queue,
    pipelines: Mutex<HashMap<String, wgpu::ComputePipeline>>,
    /// The adapter's name.
    pub adapter: String,
}

impl Gpu {
    /// The one device of a test program. Without an adapter the test fails, with a sentence that says what to install.
    pub fn get() -> &'static Self {
        static GPU: OnceLock<Gpu> = OnceLock::new();
        GPU.get_or_init(|| pollster::block_on(Self::open()))
    }

    async fn open() -> Self {
        let instance = wgpu::Instance::new(wgpu::InstanceDescriptor {
            backends: wgpu::Backends::VULKAN | wgpu::Backends::METAL | wgpu::Backends::DX12,
            ..wgpu::InstanceDescriptor::new_without_display_handle()
        });
        let adapter = instance
            .request_adapter(&wgpu::RequestAdapterOptions {
                power_preference: wgpu::PowerPreference::HighPerformance,
                ..Default::default()
            })
            .await
            .unwrap_or_else(|error| panic!("{NO_ADAPTER} ({error})"));
        let (device, queue) = adapter
            .request_device(&wgpu::DeviceDescriptor {
                required_limits: wgpu::Limits::default(),
                ..Default::default()
            })
            .await
            .unwrap();
        let adapter = adapter.get_info().name;
        println!("kernels run on {adapter}");
        Self {
            device,
            queue,
            pipelines: Mutex::new(HashMap::new()),
            adapter,
        }
    }

    /// Runs the launches on operands with these bytes and gives the bytes that every operand has afterwards.
    ///
    /// Panics when anything but `Access::Write` and `ReadWrite` operands changed, the guards between them included.
    pub fn run(
        &self,
        launches: &[Launch],
        operands: &[Operand],
        bytes: &[Vec<u8>],
    ) -> Vec<Vec<u8>> {
        self.repeat(launches, operands, bytes, 1).0
    }

    /// The same, `times` times over, with the time of the last run of the launches.
    pub fn repeat(
        &self,
        launches: &[Launch],
        operands: &[Operand],
        bytes: &[Vec<u8>],
        times: usize,
    ) -> (Vec<Vec<u8>>, Duration) {
        let arena = Arena::new(operands, bytes);
        let arena_buffer = self.buffer(&arena.bytes, wgpu::BufferUsages::STORAGE);
        let others: Vec<Option<wgpu::Buffer>> = operands
            .iter()
            .zip(bytes)
            .map(|(operand, bytes)| match operand.storage {
                Storage::Arena => None,
                Storage::Weight => Some(self.buffer(bytes, wgpu::BufferUsages::STORAGE)),
                Storage::Step => Some(self.buffer(bytes, wgpu::BufferUsages::UNIFORM)),
            })
            .collect();
        let prepared: Vec<_> = launches
            .iter()
            .map(|launch| {
                let pipeline = self.pipeline(launch, operands);
                let params: Vec<u8> = launch
                    .params
                    .iter()
                    .flat_map(|word| word.to_le_bytes())
                    .collect();
                assert!(params.len().is_multiple_of(16), "{}: params", launch.label);
                let params = self.buffer(&params, wgpu::BufferUsages::UNIFORM);
                let mut entries: Vec<_> = launch
                    .bindings
                    .iter()
                    .enumerate()
                    .map(|(at, binding)| {
                        let (buffer, start) = match &others[binding.operand] {
                            Some(buffer) => (buffer, 0),
                            None => (&arena_buffer, arena.starts[binding.operand]),
                        };
                        wgpu::BindGroupEntry {
                            binding: at as u32,
                            resource: wgpu::BindingResource::Buffer(wgpu::BufferBinding {
                                buffer,
                                offset: start + binding.offset_bytes,
                                size: Some(binding.bytes.try_into().unwrap()),
                            }),
                        }
                    })
                    .collect();
                entries.push(wgpu::BindGroupEntry {
                    binding: entries.len() as u32,
                    resource: params.as_entire_binding(),
                });
                let group = self.device.create_bind_group(&wgpu::BindGroupDescriptor {
                    label: Some(launch.label),
                    layout: &pipeline.get_bind_group_layout(0),
                    entries: &entries,
                });
                (pipeline, group, launch.workgroups)
            })
            .collect();
        let mut took = Duration::ZERO;
        for _ in 0..times {
            let start = Instant::now();
            let mut encoder = self.device.create_command_encoder(&Default::default());
            {
                let mut pass = encoder.begin_compute_pass(&Default::default());
                for (pipeline, group, [x, y, z]) in &prepared {
                    pass.set_pipeline(pipeline);
                    pass.set_bind_group(0, group, &[]);
                    pass.dispatch_workgroups(*x, *y, *z);
                }
            }
            self.queue.submit([encoder.finish()]);
            self.device
                .poll(wgpu::PollType::wait_indefinitely())
                .unwrap();
            took = start.elapsed();
        }
        (
            arena.operands(&self.read(&arena_buffer), operands, bytes),
            took,
        )
    }

    fn buffer(&self, bytes: &[u8], usage: wgpu::BufferUsages) -> wgpu::Buffer {
        let usage = usage | wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST;
        self.device
            .create_buffer_init(&wgpu::util::BufferInitDescriptor {
                label: None,
                contents: bytes,
                usage,
            })
    }

    fn pipeline(&self, launch: &Launch, operands: &[Operand]) -> wgpu::ComputePipeline {
        if let Some(known) = self.pipelines.lock().unwrap().get(&launch.source) {
            return known.clone();
        }
        let storages = launch
            .bindings
            .iter()
            .map(|binding| operands[binding.operand].storage);
        let entries: Vec<_> = storages
            .chain([Storage::Step])
            .enumerate()
            .map(|(at, storage)| wgpu::BindGroupLayoutEntry {
                binding: at as u32,
                visibility: wgpu::ShaderStages::COMPUTE,
                ty: wgpu::BindingType::Buffer {
                    ty: match storage {
                        Storage::Arena => wgpu::BufferBindingType::Storage { read_only: false },
                        Storage::Weight => wgpu::BufferBindingType::Storage { read_only: true },
                        Storage::Step => wgpu::BufferBindingType::Uniform,
                    },
                    has_dynamic_offset: false,
                    min_binding_size: None,
                },
                count: None,
            })
            .collect();
        let layout = self
            .device
            .create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor {
                label: Some(launch.label),
                entries: &entries,
            });
        let layout = self
            .device
            .create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
                label: Some(launch.label),
                bind_group_layouts: &[Some(&layout)],
                immediate_size: 0,
            });
        let scope = self.device.push_error_scope(wgpu::ErrorFilter::Validation);
        let module = self
            .device
            .create_shader_module(wgpu::ShaderModuleDescriptor {
                label: Some(launch.label),
                source: wgpu::ShaderSource::Wgsl(launch.source.as_str().into()),
            });
        let pipeline = self
            .device
            .create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
                label: Some(launch.label),
                layout: Some(&layout),
                module: &module,
                entry_point: Some(launch.entry_point),
                compilation_options: Default::default(),
                cache: None,
            });
        if let Some(error) = pollster::block_on(scope.pop()) {
            panic!("{}: {error}\n{}", launch.label, launch.source);
        }
        // compiled without the lock: two tests may compile the same source, and others need not wait
        let mut pipelines = self.pipelines.lock().unwrap();
        pipelines.insert(launch.source.clone(), pipeline.clone());
        pipeline
    }

    fn read(&self, buffer: &wgpu::Buffer) -> Vec<u8> {
        let staging = self.device.create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size: buffer.size(),
            usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        let mut encoder = self.device.create_command_encoder(&Default::default());
        encoder.copy_buffer_to_buffer(buffer, 0, &staging, 0, buffer.size());
        self.queue.submit([encoder.finish()]);
        staging.map_async(wgpu::MapMode::Read, .., |result| result.unwrap());
        self.device
            .poll(wgpu::PollType::wait_indefinitely())
            .unwrap();
        staging.get_mapped_range(..).unwrap().to_vec()
    }
}

/// The arena operands, each at a multiple of 256 bytes, with guards around them.
struct Arena {
    starts: Vec<u64>,
    bytes: Vec<u8>,
}

impl Arena {
    fn new(operands: &[Operand], bytes: &[Vec<u8>]) -> Self {
        let mut all = vec![GUARD; 256];
        let starts = operands
            .iter()
            .zip(bytes)
            .map(|(operand, bytes)| {
                assert_eq!(operand.bytes, bytes.len() as u64, "{:?}", operand.role);
                let start = all.len() as u64;
                if operand.storage == Storage::Arena {
                    all.extend_from_slice(bytes);
                    all.resize((all.len() + 256).next_multiple_of(256), GUARD);
                }
                start
            })
            .collect();
        Self { starts, bytes: all }
    }

    /// The operands' bytes in `after`; what may not have changed has not.
    fn operands(&self, after: &[u8], operands: &[Operand], bytes: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let mut expected = self.bytes.clone();
        let list = operands
            .iter()
            .zip(bytes)
            .zip(&self.starts)
            .map(|((operand, bytes), start)| {
                if operand.storage != Storage::Arena {
                    return bytes.clone();
                }
                let range = *start as usize..*start as usize + bytes.len();
                let found = after[range.clone()].to_vec();
                if operand.access != latent_canvas::kernels::Access::Read {
                    expected[range].copy_from_slice(&found);
                }
                found
            })
            .collect();
        let wrong = expected.iter().zip(after).position(|(a, b)| a != b);
        assert_eq!(
            wrong, None,
            "a byte outside of what the kernel may write changed"
        );
        list
    }
}
