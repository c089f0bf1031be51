//! `refmill doctor`, checked. A configuration that cannot be read is a finding, not the end.

use std::env;
use std::path::PathBuf;

use super::{SettingsError, worker_plan};
use crate::args::DoctorArgs;
use crate::config::Config;
use crate::devices::{self, GpuUuid, Wish};
use crate::doctor::Patient;

/// What is examined.
///
/// # Errors
/// [`SettingsError`]
pub fn patient(args: DoctorArgs) -> Result<Patient, SettingsError> {
    let (config, configuration) = match Config::load(args.config.as_deref()) {
        Ok(config) => (config, None),
        Err(error) => (Config::default(), Some(error.to_string())),
    };
    let gpu = args.gpu.as_deref().map(GpuUuid::parse).transpose()?;
    let choice = devices::choose(Wish::Auto, gpu, &args.machine_root)?;
    let text = |name| env::var_os(name)?.into_string().ok();
    let library_path = env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    Ok(Patient {
        plan: worker_plan(args.worker, choice.clone(), &config.limits, args.confined)?,
        choice,
        root: args.machine_root,
        watermark: config.watermark,
        queue: args.queue.unwrap_or(config.queue.path),
        out: args.out.unwrap_or(config.output.folder),
        temporary: env::temp_dir(),
        library_path: env::split_paths(&library_path).filter(|path| path.is_absolute()).collect(),
        visible_devices: text("CUDA_VISIBLE_DEVICES"),
        mps_folder: text("CUDA_MPS_PIPE_DIRECTORY").map(PathBuf::from),
        driver_capabilities: text("NVIDIA_DRIVER_CAPABILITIES"),
        in_kubernetes: env::var_os("KUBERNETES_SERVICE_HOST").is_some(),
        configuration,
    })
}
