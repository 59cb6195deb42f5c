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
/// Permission denied.
pub const EACCES: i32 = Errno::ACCESS.raw_os_error();
/// The file name is too long.
pub const ENAMETOOLONG: i32 = Errno::NAMETOOLONG.raw_os_error();
/// The file lacks this extended attribute.
pub const ENODATA: i32 = Errno::NODATA.raw_os_error();
/// No such device: the file system was unmounted.
pub const ENODEV: i32 = Errno::NODEV.raw_os_error();
/// The function is not implemented.
pub const ENOSYS: i32 = Errno::NOSYS.raw_os_error();
/// No such device or address: no data comes after this offset.
pub const ENXIO: i32 = Errno::NXIO.raw_os_error();
/// The result is too large for the buffer.
pub const ERANGE: i32 = Errno::RANGE.raw_os_error();
/// The file system is read-only.
pub const EROFS: i32 = Errno::ROFS.raw_os_error();
