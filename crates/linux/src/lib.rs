#![doc = include_str!("../README.md")]

mod attributes;
mod background;
mod btrfs_encoded;
mod btrfs_file_system;
mod btrfs_handle;
mod btrfs_search;
mod btrfs_send;
mod btrfs_subvolume;
mod clone;
pub mod errno;
mod fiemap;
mod fuse_device;
mod listxattrat;
mod local_time;
mod make;
mod mount;
mod mounts;
mod open;
mod path;
mod process;
mod read;
mod remove;
mod rename;
mod set;
mod space;
mod stat;
mod sync;
mod xattr;

pub use attributes::{
    attributes, change_attributes, extended_flags, set_attributes, set_extended_flags,
};
pub use background::{leave_standard_streams, leave_terminal};
pub use btrfs_encoded::{
    ENCODED_BYTES_MAX, EncodedExtent, ReadExtent, read_encoded, write_encoded,
};
pub use btrfs_file_system::{BtrfsFileSystem, btrfs_file_system};
pub use btrfs_handle::open_inode;
pub use btrfs_search::{
    Subvolume, for_each_extent_item, last_change_after, subvolume, subvolume_id, subvolumes_by_uuid,
};
pub use btrfs_send::{SubvolumeToSend, send_subvolume};
pub use btrfs_subvolume::{
    TOP_LEVEL, create_snapshot, create_subvolume, delete_subvolume, set_subvolume_read_only,
    set_subvolume_received,
};
pub use clone::clone_range;
pub use fiemap::flush_extents;
pub use fuse_device::{FUSE_DEVICE, clone_fuse_device, open_fuse_device, receive_descriptor};
pub use local_time::local_offset;
pub use make::{
    can_link_open_file, link_at, link_open_file, make_dir_at, make_node_at, make_symlink_at,
};
pub use mount::{MountHow, detach, mount, unmount};
pub use mounts::{mount_points, mounted_device};
pub use open::{
    OpenFlags, duplicate, is_symlink_error, open_at, open_beneath, open_dir, open_in_root,
    open_unnamed,
};
pub use path::{PATH_BYTES_MAX, split_path};
pub use process::{pin_thread, process_owner};
pub use read::{device_bytes, for_each_name, read_link_at, seek_data, seek_hole};
pub use remove::{remove_dir_at, remove_tree_at, unlink_at};
pub use rename::{exchange_at, rename_at, rename_new_at};
pub use set::{set_mode, set_mode_at, set_owner, set_owner_at, set_times, set_times_at};
pub use space::{allocate, begin_writing, discard, is_btrfs, page_bytes};
pub use stat::{Stat, Timestamp, is_kernel_view, stat, stat_at};
pub use sync::{sync, sync_file_system};
pub use xattr::{
    for_each_xattr, for_each_xattr_of, remove_xattr, remove_xattr_at, set_xattr, set_xattr_at,
};
