//! Error numbers (errno(3)), for programs that implement system calls.

use rustix::io::Errno;

/// Input or output error.
pub const EIO: i32 = Errno::IO.raw_os_error();
/// No such file or directory.
pub const ENOENT: i32 = Errno::NOENT.raw_os_error();
/// Not a directory.
pub const ENOTDIR: i32 = Errno::NOTDIR.raw_os_error();
/// Is a directory.
pub const EISDIR: i32 = Errno::ISDIR.raw_os_error();
/// Invalid argument.
pub const EINVAL: i32 = Errno::INVAL.raw_os_error();
/// Value too large.
pub const EOVERFLOW: i32 = Errno::OVERFLOW.raw_os_error();
/// Operation not supported.
pub const EOPNOTSUPP: i32 = Errno::OPNOTSUPP.raw_os_error();
/// The files are on different file systems.
pub const EXDEV: i32 = Errno::XDEV.raw_os_error();
/// Stale file handle.
pub const ESTALE: i32 = Errno::STALE.raw_os_error();
/// No space left on the device.
pub const ENOSPC: i32 = Errno::NOSPC.raw_os_error();
/// The buffer is too small.
pub const ENOBUFS: i32 = Errno::NOBUFS.raw_os_error();
/// The ioctl is not for this kind of file.
pub const ENOTTY: i32 = Errno::NOTTY.raw_os_error();
/// Operation not permitted.
pub const EPERM: i32 = Errno::PERM.raw_os_error();
