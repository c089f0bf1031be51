//! The kernels of worker/kernels/colour.cu: pixels on the device become sRGB there.

use std::sync::Arc;

use cudarc::driver::sys::CUdeviceptr;
use cudarc::driver::{CudaContext, CudaFunction, CudaSlice, CudaStream, DeviceRepr, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::Ptx;

use super::error::GpuError;
use crate::colour::{Kernel, Program};

/// Built by worker/kernels/build_ptx.py.
const PTX: &str = include_str!("../../kernels/colour.ptx");
const BLOCK: (u32, u32, u32) = (32, 8, 1);
/// Most blocks down a picture; each goes on where the grid ends.
const MOST_DOWN: u32 = 1 << 15;

/// The loaded kernels: for each, the one of 8-bit and the one of 16-bit samples.
#[derive(Debug)]
pub(super) struct Programs {
    plain: [CudaFunction; 2],
    table: [CudaFunction; 2],
    naive: [CudaFunction; 2],
    matrix: [CudaFunction; 2],
    rgb_grid: [CudaFunction; 2],
    cmyk_grid: [CudaFunction; 2],
}

/// Rows on the device.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rows {
    /// Where they begin.
    pub address: CUdeviceptr,
    /// From one row to the next, in bytes.
    pub pitch: usize,
    /// Bytes of the memory from `address` on.
    pub room: usize,
}

/// Alpha over a background: one byte a pixel, rows without gaps.
#[derive(Debug, Clone, Copy)]
pub(super) struct Alpha {
    /// The plane.
    pub rows: Rows,
    /// R, G and B of what shows through.
    pub background: [u8; 3],
}

/// The kernels' only argument.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct Picture {
    source: CUdeviceptr,
    source_pitch: u64,
    target: CUdeviceptr,
    target_pitch: u64,
    alpha: CUdeviceptr,
    width: u32,
    height: u32,
    background: u32,
    side: u32,
    tables: CUdeviceptr,
}

// SAFETY: Picture is plain numbers in C's layout, the same as colour.cu's struct of the same name; no padding.
unsafe impl DeviceRepr for Picture {}

impl Programs {
    /// Lets the driver translate the PTX for its GPU.
    pub fn load(context: &Arc<CudaContext>) -> Result<Self, GpuError> {
        let failed = |error| GpuError::cuda("loading the colour kernels", error);
        let module = context.load_module(Ptx::from_src(PTX)).map_err(failed)?;
        let function = |name: String| module.load_function(&name).map_err(failed);
        let pair = |name: &str| Ok([function(format!("{name}_8"))?, function(format!("{name}_16"))?]);
        Ok(Self {
            plain: pair("plain")?,
            table: pair("table")?,
            naive: pair("naive")?,
            matrix: pair("matrix")?,
            rgb_grid: pair("rgb_grid")?,
            cmyk_grid: pair("cmyk_grid")?,
        })
    }

    /// Launches every kernel once, on no pixel: the driver loads code when it is first used.
    pub fn warm_up(&self, stream: &CudaStream) -> Result<(), GpuError> {
        let no_pixel = Picture {
            source: 0,
            source_pitch: 0,
            target: 0,
            target_pitch: 0,
            alpha: 0,
            width: 0,
            height: 0,
            background: 0,
            side: 0,
            tables: 0,
        };
        let all = [&self.plain, &self.table, &self.naive, &self.matrix, &self.rgb_grid, &self.cmyk_grid];
        for function in all.into_iter().flatten() {
            let mut launch = stream.launch_builder(function);
            launch.arg(&no_pixel);
            let once = LaunchConfig { grid_dim: (1, 1, 1), block_dim: BLOCK, shared_mem_bytes: 0 };
            // SAFETY: the argument is the kernel's own; with neither width nor height it touches no memory.
            unsafe { launch.launch(once) }.map_err(|error| GpuError::cuda("starting the colour kernels", error))?;
        }
        Ok(())
    }

    /// Converts `width` x `height` pixels of `source` to interleaved 8-bit sRGB in `target`, which may be `source`
    /// itself for 8-bit RGB. `tables` holds [`Program::tables`], at a multiple of 16 bytes.
    pub fn convert(
        &self,
        stream: &CudaStream,
        (program, tables): (&Program, Rows),
        (source, target): (Rows, Rows),
        (width, height): (u32, u32),
        alpha: Option<Alpha>,
    ) -> Result<(), GpuError> {
        if width == 0 || height == 0 {
            return Ok(());
        }
        let sample = if program.deep { 2 } else { 1 };
        let row = width as usize * program.kernel.channels() * sample;
        let fits = |what, rows: Rows, row: usize| {
            let need = (height as usize - 1).saturating_mul(rows.pitch).saturating_add(row);
            if need > rows.room { Err(GpuError::Bounds { what, need, have: rows.room }) } else { Ok(()) }
        };
        fits("pixels to convert", source, row)?;
        fits("converted pixels", target, width as usize * 3)?;
        if let Some(Alpha { rows, .. }) = alpha {
            fits("alpha", Rows { pitch: width as usize, ..rows }, width as usize)?;
        }
        let (need, have) = (program.reads(), tables.room);
        if need > have {
            return Err(GpuError::Bounds { what: "tables of a profile", need, have });
        }
        let overlaps = source.address < target.address.saturating_add(target.room as u64)
            && target.address < source.address.saturating_add(source.room as u64);
        let in_place = source.address == target.address && source.pitch == target.pitch && row == width as usize * 3;
        let aligned = source.address.is_multiple_of(sample as u64) && source.pitch.is_multiple_of(sample);
        if (overlaps && !in_place) || !aligned || !tables.address.is_multiple_of(16) {
            return Err(GpuError::Bounds { what: "memory of a conversion", need: row, have: source.pitch });
        }
        let [r, g, b] = alpha.map_or([0; 3], |alpha| alpha.background);
        let picture = Picture {
            source: source.address,
            source_pitch: source.pitch as u64,
            target: target.address,
            target_pitch: target.pitch as u64,
            alpha: alpha.map_or(0, |alpha| alpha.rows.address),
            width,
            height,
            background: u32::from_le_bytes([r, g, b, 0]),
            side: program.side,
            tables: tables.address,
        };
        let [bytes, words] = match program.kernel {
            Kernel::Plain => &self.plain,
            Kernel::Table => &self.table,
            Kernel::Naive => &self.naive,
            Kernel::Matrix => &self.matrix,
            Kernel::RgbGrid => &self.rgb_grid,
            Kernel::CmykGrid => &self.cmyk_grid,
        };
        let mut launch = stream.launch_builder(if program.deep { words } else { bytes });
        launch.arg(&picture);
        let (x, y, _) = BLOCK;
        let grid_dim = (width.div_ceil(x), height.div_ceil(y).min(MOST_DOWN), 1);
        // SAFETY: the argument is the kernel's own. It reads `height` rows of `row` bytes, as many rows of alpha where
        // there is one, and `program.reads()` bytes of tables, and writes rows of 3 * width bytes: all inside their
        // memory, checked above. Steps and nodes come from one grid, so that no sum of them leaves the nodes.
        unsafe { launch.launch(LaunchConfig { grid_dim, block_dim: BLOCK, shared_mem_bytes: 0 }) }
            .map_err(|error| GpuError::cuda("converting colours", error))?;
        Ok(())
    }
}

impl Rows {
    /// All of `memory` from `start` on. The address is that of memory whose uses the caller orders.
    pub fn of(memory: &CudaSlice<u8>, start: usize, pitch: usize, stream: &CudaStream) -> Self {
        use cudarc::driver::DevicePtr;
        let (address, _guard) = memory.device_ptr(stream);
        Self { address: address + start as u64, pitch, room: memory.num_bytes().saturating_sub(start) }
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use refmill::job::ColourOptions;

    use super::*;
    use crate::colour::{ColourStage, Kind, lut_profiles};
    use crate::decode::{Decoded, Pixels};
    use crate::gpu::tests::gpu;
    use crate::gpu::{Gpu, allocate};
    use crate::icc::Profile;
    use crate::orientation::Orientation;
    use crate::repair::{Chromaticities, Meaning};
    use crate::srgb::SrgbImage;
    use crate::tensors::cpu::CpuDevice;
    use crate::tensors::samples::{Noise, sdxl};

    fn icc(bytes: Vec<u8>) -> Meaning<'static> {
        Meaning::Icc(Profile { bytes: Cow::Owned(bytes), description: String::new(), linear: false })
    }

    fn upload(gpu: &Gpu, bytes: &[u8]) -> CudaSlice<u8> {
        let mut memory = allocate(&gpu.compute, bytes.len().max(1), "memory for a test").unwrap();
        if !bytes.is_empty() {
            gpu.compute.memcpy_htod(bytes, &mut memory.slice_mut(..bytes.len())).unwrap();
        }
        memory
    }

    /// Pixels as bytes, for the GPU.
    fn bytes(pixels: &Pixels) -> Vec<u8> {
        match pixels {
            Pixels::Gray8(data) | Pixels::Rgb8(data) | Pixels::Cmyk8(data) | Pixels::Lab8(data) => data.clone(),
            Pixels::Gray16(data) | Pixels::Rgb16(data) | Pixels::Cmyk16(data) => {
                data.iter().flat_map(|sample| sample.to_le_bytes()).collect()
            }
        }
    }

    /// Converts on both devices and returns how many bytes differ.
    fn differing(
        gpu: &Gpu,
        meaning: &Meaning<'_>,
        pixels: Pixels,
        (w, h): (u32, u32),
        alpha: Option<Vec<u8>>,
    ) -> usize {
        let (kind, background) = (Kind::of(&pixels), [7, 130, 255]);
        let engine = crate::colour::build(meaning, kind, ColourOptions::default()).unwrap();
        let program = Program::new(&engine, kind).unwrap();
        let (source, tables) = (upload(gpu, &bytes(&pixels)), upload(gpu, &program.tables));
        let mask = upload(gpu, alpha.as_deref().unwrap_or_default());
        let target = allocate(&gpu.compute, (w * h * 3) as usize, "memory for a test").unwrap();
        let pitch = bytes(&pixels).len() / h as usize;
        let rows = |memory, pitch| Rows::of(memory, 0, pitch, &gpu.compute);
        let mask = alpha.is_some().then(|| Alpha { rows: rows(&mask, w as usize), background });
        let (from, to) = (rows(&source, pitch), rows(&target, w as usize * 3));
        let tables = (&program, rows(&tables, 0));
        gpu.loaded.programs.convert(&gpu.compute, tables, (from, to), (w, h), mask).unwrap();
        let mut want = SrgbImage::claim(w, h, engine.apply(pixels).unwrap(), alpha, Orientation::UPRIGHT).unwrap();
        want.composite(background);
        let mut got = vec![0; target.num_bytes()];
        gpu.compute.memcpy_dtoh(&target, &mut got).unwrap();
        gpu.compute.synchronize().unwrap();
        let apart = got.iter().zip(want.rgb()).filter(|(g, w)| g != w).count();
        if matches!(kind, Kind::Rgb8) && mask.is_none() {
            gpu.loaded.programs.convert(&gpu.compute, tables, (from, from), (w, h), None).unwrap();
            let mut place = vec![0; source.num_bytes()];
            gpu.compute.memcpy_dtoh(&source, &mut place).unwrap();
            gpu.compute.synchronize().unwrap();
            return apart + place.iter().zip(want.rgb()).filter(|(g, w)| g != w).count();
        }
        apart
    }

    fn words(noise: &mut Noise, count: usize) -> Vec<u16> {
        noise.bytes(count * 2).as_chunks().0.iter().map(|pair| u16::from_le_bytes(*pair)).collect()
    }

    #[test]
    fn every_program_gives_the_cpu_s_bytes() {
        let Some(gpu) = gpu() else { return };
        let mut noise = Noise(77);
        let wide = || Meaning::Gamma { exponent: 1.8, chromaticities: Chromaticities::ADOBE_RGB };
        let p3 = || Meaning::Cicp { primaries: 12, transfer: 13 };
        let (mut pictures, mut differ) = (0, 0);
        for (w, h) in [(1, 1), (33, 9), (64, 40), (401, 77), (1000, 701)] {
            let n = (w * h) as usize;
            let mut check = |meaning: Meaning<'_>, pixels: Pixels, alpha: Option<Vec<u8>>| {
                pictures += 1;
                differ += differing(&gpu, &meaning, pixels, (w, h), alpha);
            };
            for meaning in [Meaning::Srgb, Meaning::AdobeRgb, wide(), p3(), icc(lut_profiles::rgb(17))] {
                let alpha = noise.bytes(n);
                check(meaning.clone(), Pixels::Rgb8(noise.bytes(n * 3)), None);
                check(meaning.clone(), Pixels::Rgb8(noise.bytes(n * 3)), Some(alpha));
                check(meaning, Pixels::Rgb16(words(&mut noise, n * 3)), None);
            }
            for meaning in [Meaning::Srgb, Meaning::AdobeRgb] {
                check(meaning.clone(), Pixels::Gray8(noise.bytes(n)), Some(noise.bytes(n)));
                check(meaning, Pixels::Gray16(words(&mut noise, n)), None);
            }
            for meaning in [Meaning::CmykNaive, icc(lut_profiles::cmyk(9, true)), icc(lut_profiles::cmyk(9, false))] {
                check(meaning.clone(), Pixels::Cmyk8(noise.bytes(n * 4)), None);
                check(meaning, Pixels::Cmyk16(words(&mut noise, n * 4)), None);
            }
        }
        eprintln!("{pictures} pictures converted on both devices, {differ} bytes differ");
        assert_eq!(differ, 0);
    }

    #[test]
    fn tensors_of_stored_pixels_are_the_cpu_s() {
        let Some(mut gpu) = gpu() else { return };
        let (mut noise, mut cpu) = (Noise(3), CpuDevice::new());
        let (w, h, background, mut tensors) = (301u32, 203u32, [9, 99, 199], 0);
        let n = (w * h) as usize;
        let adobe = || Meaning::AdobeRgb;
        let pictures = [
            (adobe(), Pixels::Rgb8(noise.bytes(n * 3)), None),
            (adobe(), Pixels::Rgb8(noise.bytes(n * 3)), Some(noise.bytes(n))),
            (Meaning::Srgb, Pixels::Rgb8(noise.bytes(n * 3)), Some(noise.bytes(n))),
            (adobe(), Pixels::Rgb16(words(&mut noise, n * 3)), Some(noise.bytes(n))),
            (Meaning::Srgb, Pixels::Gray8(noise.bytes(n)), Some(noise.bytes(n))),
            (icc(lut_profiles::rgb(17)), Pixels::Rgb8(noise.bytes(n * 3)), None),
            (icc(lut_profiles::cmyk(9, true)), Pixels::Cmyk8(noise.bytes(n * 4)), None),
            (Meaning::CmykNaive, Pixels::Cmyk16(words(&mut noise, n * 4)), None),
        ];
        for (round, (meaning, pixels, alpha)) in pictures.into_iter().enumerate() {
            let orientation = Orientation::from_exif(1 + round as u32).unwrap();
            let mut stage = ColourStage::default();
            let mut bound = || {
                let (pixels, alpha, meaning) = (pixels.clone(), alpha.clone(), meaning.clone());
                let decoded = Decoded { width: w, height: h, pixels, alpha, orientation, meaning };
                stage.bind(decoded, ColourOptions::default(), &mut Vec::new(), &mut Vec::new()).unwrap()
            };
            let got = gpu.derive_unconverted(&bound(), background, &sdxl()).unwrap();
            let mut image = bound().into_srgb().unwrap();
            image.composite(background);
            let want = cpu.derive(&image, &sdxl()).unwrap();
            assert_eq!((got.uploads, got.tensors.len()), (1, want.tensors.len()));
            for (got, want) in got.tensors.iter().zip(&want.tensors) {
                let apart = got.bytes.iter().zip(&want.bytes).filter(|(g, w)| g != w).count();
                assert_eq!((apart, got.shape), (0, want.shape), "{} of picture {round}", want.spec.name);
                tensors += 1;
            }
        }
        eprintln!("{tensors} tensors of stored pixels compared, 0 bytes differ");
    }

    #[test]
    fn conversion_outside_its_memory_is_not_launched() {
        let Some(gpu) = gpu() else { return };
        let engine = crate::colour::build(&Meaning::AdobeRgb, Kind::Rgb8, ColourOptions::default()).unwrap();
        let program = Program::new(&engine, Kind::Rgb8).unwrap();
        let (pixels, tables) = (upload(&gpu, &[0; 300]), upload(&gpu, &program.tables));
        let rows = |memory| Rows::of(memory, 0, 30, &gpu.compute);
        let run = |source: Rows, tables: Rows, height| {
            gpu.loaded.programs.convert(&gpu.compute, (&program, tables), (source, source), (10, height), None)
        };
        let tall = pixels.num_bytes() as u32 / 30 + 2;
        assert!(matches!(run(rows(&pixels), rows(&tables), tall), Err(GpuError::Bounds { .. })));
        let short = Rows { room: program.tables.len() - 1, ..rows(&tables) };
        assert!(matches!(run(rows(&pixels), short, 10), Err(GpuError::Bounds { .. })));
        assert_eq!(run(rows(&pixels), rows(&tables), 10), Ok(()));
    }

    #[test]
    #[ignore = "prints times, asserts nothing; run it by hand on a GPU with --ignored --nocapture"]
    fn times_of_conversions() {
        use cudarc::driver::sys::CUevent_flags::CU_EVENT_DEFAULT;
        let Some(gpu) = gpu() else { return };
        let (w, h) = (4000, 3000);
        let n = (w * h) as usize;
        let mut noise = Noise(5);
        let cases = [
            ("matrix, 8 bits", Meaning::AdobeRgb, Pixels::Rgb8(noise.bytes(n * 3))),
            ("matrix, 16 bits", Meaning::AdobeRgb, Pixels::Rgb16(words(&mut noise, n * 3))),
            ("grid of 17, RGB", icc(lut_profiles::rgb(17)), Pixels::Rgb8(noise.bytes(n * 3))),
            ("grid of 9, CMYK", icc(lut_profiles::cmyk(9, true)), Pixels::Cmyk8(noise.bytes(n * 4))),
            ("gray", Meaning::AdobeRgb, Pixels::Gray8(noise.bytes(n))),
        ];
        for (what, meaning, pixels) in cases {
            let kind = Kind::of(&pixels);
            let engine = crate::colour::build(&meaning, kind, ColourOptions::default()).unwrap();
            let program = Program::new(&engine, kind).unwrap();
            let (source, tables) = (upload(&gpu, &bytes(&pixels)), upload(&gpu, &program.tables));
            let target = allocate(&gpu.compute, n * 3, "memory for a test").unwrap();
            let pitch = bytes(&pixels).len() / h as usize;
            let event = || gpu.context.new_event(Some(CU_EVENT_DEFAULT)).unwrap();
            let (from, to) = (event(), event());
            let mut times: Vec<f64> = (0..20)
                .map(|_| {
                    from.record(&gpu.compute).unwrap();
                    let rows = |memory, pitch| Rows::of(memory, 0, pitch, &gpu.compute);
                    let way = (rows(&source, pitch), rows(&target, w as usize * 3));
                    let tables = (&program, rows(&tables, 0));
                    gpu.loaded.programs.convert(&gpu.compute, tables, way, (w, h), None).unwrap();
                    to.record(&gpu.compute).unwrap();
                    f64::from(from.elapsed_ms(&to).unwrap()) * 1e3
                })
                .collect();
            times.sort_by(f64::total_cmp);
            let started = std::time::Instant::now();
            drop(engine.apply(pixels).unwrap());
            let cpu = started.elapsed().as_secs_f64() * 1e9 / n as f64;
            eprintln!("| {what}, 12 MP of noise | {:.0} us | CPU {cpu:.1} ns a pixel |", times[10]);
        }
    }
}
