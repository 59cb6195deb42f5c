//! Local time.

use std::ffi::{c_char, c_int, c_long};

/// `struct tm`, as glibc and musl have it.
#[repr(C)]
struct Tm {
    /// Seconds, minutes, hours, day, month, year, day of the week, day of the year, daylight saving
    /// time.
    fields: [c_int; 9],
    gmtoff: c_long,
    zone: *const c_char,
}

unsafe extern "C" {
    /// localtime_r(3) of the C library.
    fn localtime_r(time: *const c_long, result: *mut Tm) -> *mut Tm;
}

/// The offset of local time from UTC at a time, both in seconds, east positive; 0 if the C library
/// knows none.
pub fn local_offset(seconds: i64) -> i32 {
    // It is 64 bits wide wherever the time of the C library is.
    let time = seconds as c_long;
    let mut result = Tm {
        fields: [0; 9],
        gmtoff: 0,
        zone: std::ptr::null(),
    };
    // SAFETY: localtime_r reads the time and writes a `struct tm`; both live until the call is
    // over. It also reads the environment, which no code of this repository changes.
    let done = unsafe { localtime_r(&raw const time, &raw mut result) };
    if done.is_null() {
        return 0;
    }
    i32::try_from(result.gmtoff).unwrap_or_default()
}
