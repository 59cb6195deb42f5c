//! The Linux system calls that the standard library lacks, safe on the outside.
//!
//! Everything here takes an open directory and names beneath it, as bytes, and never follows a symbolic link in the
//! last component. The calls come from rustix, but for one that is too new for it and the only unsafe code here; the
//! crates above it do not see rustix: errors are [`std::io::Error`].

mod cpu;
pub mod errno;
mod file;
mod listxattrat;
mod xattr;

pub use cpu::pin_thread;
pub use file::{
    OpenFlags, PATH_BYTES_MAX, Stat, Timestamp, attributes, can_link_open_file, device_bytes,
    exchange_at, for_each_name, is_kernel_view, is_symlink_error, link_at, link_open_file,
    make_dir_at, make_node_at, make_symlink_at, open_at, open_beneath, open_dir, open_unnamed,
    process_owner, read_link_at, remove_tree_at, rename_at, rename_new_at, seek_data, seek_hole,
    set_attributes, set_mode, set_mode_at, set_owner, set_owner_at, set_times, set_times_at,
    split_path, stat, stat_at, sync, sync_file_system, unlink_at,
};
pub use xattr::{
    XATTR_BYTES_MAX, for_each_xattr, for_each_xattr_of, remove_xattr, set_xattr, set_xattr_at,
};
