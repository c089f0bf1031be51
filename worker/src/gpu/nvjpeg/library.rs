//! libnvjpeg, found and opened at run time. The few calls that are used have had one form from version 11 to 13.

use std::ffi::{OsStr, c_void};
use std::path::{Path, PathBuf};
use std::ptr;

use libloading::Library;

/// Of CUDA 13, 12 and 11, the newest first.
const NAMES: [&str; 3] = ["libnvjpeg.so.13", "libnvjpeg.so.12", "libnvjpeg.so.11"];
/// Where a toolkit lies beside what the loader searches by itself.
const TOOLKIT: [&str; 2] = ["/usr/local/cuda/lib64", "/usr/local/cuda/targets/x86_64-linux/lib"];
/// Where pip puts its wheels in a folder of packages.
const WHEELS: [&str; 2] = ["nvidia/cu13/lib", "nvidia/nvjpeg/lib"];
/// `NVJPEG_BACKEND_HARDWARE`.
const HARDWARE: i32 = 3;
/// `NVJPEG_OUTPUT_YUV`: planes, chroma as sampled.
pub const PLANES: i32 = 1;
/// `NVJPEG_STATUS_SUCCESS`.
const SUCCESS: i32 = 0;

/// An object of the library.
pub type Object = *mut c_void;

/// `nvjpegImage_t`: where up to four planes go.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct Destination {
    /// Device addresses.
    pub planes: [u64; 4],
    /// Bytes of a row.
    pub pitches: [usize; 4],
}

type GetProperty = unsafe extern "C" fn(i32, *mut i32) -> i32;
type CreateEx = unsafe extern "C" fn(i32, *const c_void, *const c_void, u32, *mut Object) -> i32;
type Destroy = unsafe extern "C" fn(Object) -> i32;
type HardwareInfo = unsafe extern "C" fn(Object, *mut u32, *mut u32) -> i32;
type Make = unsafe extern "C" fn(Object, *mut Object) -> i32;
type Initialize = unsafe extern "C" fn(Object, Object, i32, i32, i32) -> i32;
type Decode =
    unsafe extern "C" fn(Object, Object, *const *const u8, *const usize, *mut Destination, *mut c_void) -> i32;

/// The calls, and the library that they belong to.
#[derive(Debug)]
pub struct Calls {
    destroy: Destroy,
    state_create: Make,
    state_destroy: Destroy,
    initialize: Initialize,
    decode: Decode,
    get_property: GetProperty,
    create: CreateEx,
    hardware_info: HardwareInfo,
}

/// The loader's own words, which are the error's source.
fn reason(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), |source| format!("{error}: {source}"))
}

impl Calls {
    /// Opens the library at `path`, or by that name.
    pub fn open(path: &Path) -> Result<Self, String> {
        // SAFETY: opening runs the library's initialisers. The path is the operator's choice or a fixed place of the
        // system, as trusted as the driver, and nothing hostile was read yet.
        let library = unsafe { Library::new(path) }.map_err(|error| reason(&error))?;
        // Never closed: its threads and its exit handlers would outlive their code.
        let library: &'static Library = Box::leak(Box::new(library));
        Ok(Self {
            destroy: symbol(library, b"nvjpegDestroy\0")?,
            state_create: symbol(library, b"nvjpegJpegStateCreate\0")?,
            state_destroy: symbol(library, b"nvjpegJpegStateDestroy\0")?,
            initialize: symbol(library, b"nvjpegDecodeBatchedInitialize\0")?,
            decode: symbol(library, b"nvjpegDecodeBatched\0")?,
            get_property: symbol(library, b"nvjpegGetProperty\0")?,
            create: symbol(library, b"nvjpegCreateEx\0")?,
            hardware_info: symbol(library, b"nvjpegGetHardwareDecoderInfo\0")?,
        })
    }

    /// Version as major, minor, patch.
    pub fn version(&self) -> [i32; 3] {
        [0, 1, 2].map(|which| {
            let mut value = 0;
            // SAFETY: the call writes one int, which lives here; 0 to 2 are the properties that exist.
            let status = unsafe { (self.get_property)(which, &raw mut value) };
            if status == SUCCESS { value } else { -1 }
        })
    }

    /// Opens the hardware decoder of the current context's GPU.
    pub fn create(&self) -> Result<Object, i32> {
        let mut handle = ptr::null_mut();
        // SAFETY: null allocators mean the library's own; it writes one pointer, which lives here.
        let status = unsafe { (self.create)(HARDWARE, ptr::null(), ptr::null(), 0, &raw mut handle) };
        checked(status).map(|()| handle)
    }

    /// How many engines the GPU has.
    pub fn engines(&self, handle: Object) -> Result<u32, i32> {
        let (mut engines, mut cores) = (0, 0);
        // SAFETY: `handle` is one that `create` made; two words are written, which live here.
        let status = unsafe { (self.hardware_info)(handle, &raw mut engines, &raw mut cores) };
        checked(status).map(|()| engines)
    }

    /// Closes the decoder.
    pub fn destroy(&self, handle: Object) {
        // SAFETY: `handle` is one that `create` made; its owner gives it up with this call.
        unsafe { (self.destroy)(handle) };
    }

    /// Makes what one batch at a time is decoded with.
    pub fn make_state(&self, handle: Object) -> Result<Object, i32> {
        let mut state = ptr::null_mut();
        // SAFETY: `handle` is one that `create` made; it writes one pointer, which lives here.
        let status = unsafe { (self.state_create)(handle, &raw mut state) };
        checked(status).map(|()| state)
    }

    /// Gives such a state back.
    pub fn end_state(&self, state: Object) {
        // SAFETY: `state` is one that `make_state` made; its owner gives it up with this call.
        unsafe { (self.state_destroy)(state) };
    }

    /// Says how many images the next batches have; planes are wanted.
    pub fn initialize(&self, handle: Object, state: Object, images: usize) -> Result<(), i32> {
        let images = i32::try_from(images).unwrap_or(i32::MAX);
        // SAFETY: both objects are alive and belong together, as their owner keeps them.
        checked(unsafe { (self.initialize)(handle, state, images, 1, PLANES) })
    }

    /// Puts a batch on a stream.
    ///
    /// # Safety
    /// Each stream's bytes and each destination's memory must stay alive until `stream` has done the work, and the
    /// memory must hold the planes of its image with the pitches given. `initialize` was told the same number.
    pub unsafe fn decode(
        &self,
        (handle, state): (Object, Object),
        streams: &[&[u8]],
        destinations: &mut [Destination],
        stream: *mut c_void,
    ) -> Result<(), i32> {
        let starts: Vec<*const u8> = streams.iter().map(|stream| stream.as_ptr()).collect();
        let lengths: Vec<usize> = streams.iter().map(|stream| stream.len()).collect();
        let to = destinations.as_mut_ptr();
        // SAFETY: the three arrays have as many entries as `initialize` was told, by the caller's promise, which
        // also covers what they point to.
        checked(unsafe { (self.decode)(handle, state, starts.as_ptr(), lengths.as_ptr(), to, stream) })
    }
}

fn symbol<T: Copy>(library: &'static Library, name: &[u8]) -> Result<T, String> {
    // SAFETY: each name is asked for with the type that nvjpeg.h declares for it, which `open` alone does.
    let found = unsafe { library.get::<T>(name) };
    found.map(|symbol| *symbol).map_err(|error| error.to_string())
}

fn checked(status: i32) -> Result<(), i32> {
    if status == SUCCESS { Ok(()) } else { Err(status) }
}

/// Where to look, in order: in what the operator named alone, or else in the usual places.
pub fn places(named: Option<&OsStr>) -> Vec<PathBuf> {
    let Some(named) = named else {
        let toolkit = TOOLKIT.iter().flat_map(|folder| NAMES.map(|name| Path::new(folder).join(name)));
        return NAMES.iter().map(PathBuf::from).chain(toolkit).collect();
    };
    let named = Path::new(named);
    if !named.is_dir() {
        return vec![named.to_owned()];
    }
    let folders = std::iter::once(named.to_owned()).chain(WHEELS.iter().map(|wheel| named.join(wheel)));
    let files = folders.flat_map(|folder| NAMES.map(|name| folder.join(name)));
    files.filter(|file| file.is_file()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_folder_of_packages_is_searched_for_wheels_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let wheel = folder.path().join("nvidia/nvjpeg/lib");
        std::fs::create_dir_all(&wheel).unwrap();
        std::fs::write(wheel.join("libnvjpeg.so.12"), b"").unwrap();
        assert_eq!(places(Some(folder.path().as_os_str())), [wheel.join("libnvjpeg.so.12")]);
    }

    #[test]
    fn unnamed_library_is_asked_of_the_loader_first() {
        let places = places(None);
        assert_eq!(places.first().map(PathBuf::as_path), Some(Path::new("libnvjpeg.so.13")));
        assert!(places.contains(&PathBuf::from("/usr/local/cuda/lib64/libnvjpeg.so.12")));
    }

    #[test]
    fn file_that_is_no_library_is_refused_with_the_loader_s_words() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let refused = Calls::open(file.path()).unwrap_err();
        assert!(refused.contains("file too short"), "{refused}");
    }
}
