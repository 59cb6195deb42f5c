# Shapes of sound file systems. A shape is a line `#: NAME` and the commands that make it; the lines
# before the first are common to all. $D1 to $D4 are devices of the files $F1 to $F4, $M is where to
# mount, $N a file of random bytes, $T an empty directory. Files in $C are the image at the end; if
# there is none, all files with a superblock are. With `needs newer`, only a btrfs-progs newer than
# 6.2 makes or understands a shape.
set -eu
mk() { mkfs.btrfs -q -f "$@"; }
on() { btrfs device scan $D1 >/dev/null; mount -t btrfs "$@" $D1 $M; }
# Another program that looks at all mounts can keep it busy for a moment.
off() { for try in 1 2 3 4 5; do umount $M && return; sleep 1; done; return 1; }
# The state on the first device at this moment, as after a crash.
crash() { sync -f $C; cp --reflink=always $F1 $C/crash; }
files() { # directory, first byte of the random ones
    local n; mkdir -p $1/dir
    for n in 1 100 2047 2048 4096 5000 70000 131072 131073 600000; do
        tail -c +$2 $N | head -c $n >$1/noise$n
        yes "restow $2" | head -c $n >$1/text$n
    done
    for n in $(seq 150); do echo $n >$1/dir/$n; done
    ln $1/text5000 $1/dir/hard; ln -s text5000 $1/soft; mkfifo $1/fifo; mknod $1/null c 1 3
    setfattr -n user.short -v value $1/text1
    setfattr -n user.long -v "$(head -c 3000 /dev/zero | tr '\0' v)" $1/text100
}
odd() { # what the format has beside files that are written once
    cp --reflink=always $1/noise600000 $1/clone; truncate -s 123457 $1/clone; truncate -s 2M $1/clone
    fallocate -l 1M $1/allocated; fallocate -n -l 300K $1/text100
    head -c 9000 $N | dd of=$1/allocated bs=1000 seek=200 conv=notrunc status=none
    cp $1/noise600000 $1/punched; sync -f $1; fallocate -p -o 10000 -l 200000 $1/punched
    for at in 5 30 99; do
        head -c 9000 $N | dd of=$1/text600000 bs=5000 seek=$at conv=notrunc,fsync status=none
    done
}
full() { files $M 1; odd $M; sync -f $M; }
usual() { mk "$@" $D1; on; full; off; }
sub() { btrfs -q subvolume "$@"; }
#: checksums crc32c
usual
#: checksums xxhash
usual --csum xxhash
#: checksums sha256
usual --csum sha256
#: checksums blake2b
usual --csum blake2
#: nodes of 4K
usual -n 4K
#: nodes of 8K
usual -n 8K
#: nodes of 32K
usual -n 32K
#: nodes of 64K
usual -n 64K
#: mixed block groups
usual --mixed
#: mixed block groups twice
usual --mixed -d dup -m dup
#: data twice
usual -d dup -m dup
#: single metadata
usual -m single
#: items of holes
usual -O ^no-holes
#: features of 2012
usual -O ^no-holes,^extref,^skinny-metadata -R ^free-space-tree -n 4K
#: no space cache
mk -R ^free-space-tree $D1; on -o nospace_cache; full; off
#: space cache of the first version
mk -R ^free-space-tree $D1; on -o space_cache=v1; full; off
on -o space_cache=v1; rm $M/noise*; sync -f $M; files $M/again 7; off
#: from the first space cache to the tree
mk -R ^free-space-tree $D1; on -o space_cache=v1; full; off; on -o clear_cache,space_cache=v2; off
#: a free space tree with bitmaps
mk $D1; on; for n in $(seq 1500); do head -c 4096 $N >$M/$n; done; sync -f $M
for n in $(seq 1 2 1500); do rm $M/$n; done; off
#: block group tree
# needs newer
usual -O block-group-tree
#: block group tree of a converted image
# needs newer
usual -O ^block-group-tree; btrfstune --convert-to-block-group-tree $D1
#: zstd
mk $D1; on -o compress-force=zstd; full; off
#: lzo
mk $D1; on -o compress-force=lzo; full; off
#: zlib
mk $D1; on -o compress-force=zlib; full; off
#: one algorithm after another
mk $D1; for by in zstd:15 zlib:1 lzo no; do on -o compress-force=$by; files $M/$by 9; odd $M/$by; off; done
#: no checksums
mk $D1; on -o nodatasum; full; off
#: data that is written in place
mk $D1; on -o nodatacow; full; off
#: attributes of files
mk $D1; on; full; mkdir $M/c; chattr +C $M/c; cp $N $M/c/n; chattr +i $M/text1; chattr +a $M/text2048; off
#: no inline extents
mk $D1; on -o max_inline=0; full; off
#: quotas
mk $D1; on; btrfs quota enable $M; sub create $M/a; files $M/a 3; sub snapshot $M/a $M/b
btrfs qgroup create 1/0 $M; btrfs qgroup assign --no-rescan 0/256 1/0 $M; rm $M/b/noise*
btrfs qgroup limit 100M $M/b; btrfs quota rescan -w $M >/dev/null; off
#: quotas as mkfs.btrfs makes them
mk -R quota $D1
#: quotas that are counted again
mk $D1; on; full; sub create $M/a; files $M/a 3; btrfs quota enable $M; crash; off
#: quotas of deleted subvolumes
mk $D1; on; btrfs quota enable $M; sub create $M/a; files $M/a 3; sub snapshot $M/a $M/b
sub delete $M/a; off; on; sync -f $M; off
#: simple quotas
# needs newer
mk -O squota $D1; on; sub create $M/a; files $M/a 3; sub snapshot $M/a $M/b; files $M/b/more 5; off
#: simple quotas of a file system with files
# needs newer
mk $D1; on; full; btrfs quota enable --simple $M; sub create $M/a; files $M/a 3; rm $M/noise*; off
#: RAID0
mk -d raid0 -m raid0 $D1 $D2; btrfs device scan $D2 >/dev/null; on; full; off
#: RAID0 of one device
usual -d raid0 -m raid0
#: RAID1
mk -d raid1 -m raid1 $D1 $D2; btrfs device scan $D2 >/dev/null; on; full; off
#: RAID1C3
mk -d raid1c3 -m raid1c3 $D1 $D2 $D3; btrfs device scan $D2 $D3 >/dev/null; on; full; off
#: RAID1C4
mk -d raid1c4 -m raid1c4 $D1 $D2 $D3 $D4; btrfs device scan $D2 $D3 $D4 >/dev/null; on; full; off
#: RAID10
mk -d raid10 -m raid10 $D1 $D2 $D3 $D4; btrfs device scan $D2 $D3 $D4 >/dev/null; on; full; off
#: RAID5
mk -d raid5 -m raid5 $D1 $D2 $D3; btrfs device scan $D2 $D3 >/dev/null; on; full; off
#: RAID6
mk -d raid6 -m raid6 $D1 $D2 $D3 $D4; btrfs device scan $D2 $D3 $D4 >/dev/null; on; full; off
#: devices of three sizes
truncate -s 300M $F2; losetup -c $D2; mk -d single -m raid1 $D1 $D2 $D3; btrfs device scan $D2 $D3 >/dev/null
on; full; cp $N $M/n; cp $N $M/o; off
#: RAID1 without its second device
mk -d raid1 -m raid1 $D1 $D2; btrfs device scan $D2 >/dev/null; on; full; off; cp --reflink=always $F1 $C/1
#: RAID1 without its first device
mk -d raid1 -m raid1 $D1 $D2; btrfs device scan $D2 >/dev/null; on; full; off; cp --reflink=always $F2 $C/2
#: RAID1 that was written without its second device
mk -d raid1 -m raid1 $D1 $D2; btrfs device scan $D2 >/dev/null; on; full; off
btrfs device scan --forget $D1; btrfs device scan --forget $D2; wipefs -qa $D2; on -o degraded; files $M/more 5; off
cp --reflink=always $F1 $C/1
#: RAID5 without a device
mk -d raid5 -m raid1 $D1 $D2 $D3; btrfs device scan $D2 $D3 >/dev/null; on; full; off
cp --reflink=always $F1 $C/1; cp --reflink=always $F3 $C/3
#: RAID6 without a device
mk -d raid6 -m raid1c3 $D1 $D2 $D3 $D4; btrfs device scan $D2 $D3 $D4 >/dev/null; on; full; off
for n in 1 3 4; do cp --reflink=always ${F1%1}$n $C/$n; done
#: RAID6 without two devices
mk -d raid6 -m raid1c3 $D1 $D2 $D3 $D4; btrfs device scan $D2 $D3 $D4 >/dev/null; on; full; off
for n in 1 3; do cp --reflink=always ${F1%1}$n $C/$n; done
#: a replaced device
mk -d raid1 -m raid1 $D1 $D2; btrfs device scan $D2 >/dev/null; on; full
btrfs replace start -B -f 2 $D3 $M >/dev/null; files $M/more 5; off
#: an added device
mk $D1; on; full; btrfs device add -f $D2 $M >/dev/null 2>&1; files $M/more 5; off
#: a removed device
mk -d single -m single $D1 $D2 $D3; btrfs device scan $D2 $D3 >/dev/null; on; full
btrfs device remove $D2 $M; files $M/more 5; off
#: smaller than it was
mk $D1; on; full; btrfs filesystem resize 600M $M >/dev/null; files $M/more 5; off
#: larger than it was
truncate -s 300M $F1; losetup -c $D1; mk $D1; truncate -s 900M $F1; losetup -c $D1; on
full; btrfs filesystem resize max $M >/dev/null; files $M/more 5; off
#: a seed
usual; btrfstune -S 1 $D1; cp --reflink=always $F1 $C/1
#: a seed and its sprout
usual; btrfstune -S 1 $D1; on; btrfs device add -f $D2 $M >/dev/null 2>&1; mount -o remount,rw $M
files $M/more 5; off
#: a sprout of a sprout
usual; btrfstune -S 1 $D1; on; btrfs device add -f $D2 $M >/dev/null 2>&1; mount -o remount,rw $M
files $M/more 5; off; btrfstune -S 1 $D2; mount $D2 $M; btrfs device add -f $D3 $M >/dev/null 2>&1
mount -o remount,rw $M; files $M/most 7; off
#: a sprout without its seed
usual; btrfstune -S 1 $D1; on; btrfs device add -f $D2 $M >/dev/null 2>&1; mount -o remount,rw $M
files $M/more 5; btrfs device remove $D1 $M; off; cp --reflink=always $F2 $C/2
#: converted from ext4
mkfs.ext4 -q -F $D1; mount $D1 $M; files $M 1; off; btrfs-convert --no-progress $D1 >/dev/null
#: converted from ext4 and written to
mkfs.ext4 -q -F $D1; mount $D1 $M; files $M 1; off; btrfs-convert --no-progress $D1 >/dev/null; on; files $M/more 5; odd $M; off
#: converted from ext4 for good
mkfs.ext4 -q -F $D1; mount $D1 $M; files $M 1; off; btrfs-convert --no-progress $D1 >/dev/null; on
sub delete $M/ext2_saved; btrfs balance start --full-balance $M >/dev/null; off
#: converted from ext4 by a newer version
# needs newer
mkfs.ext4 -q -F $D1; mount $D1 $M; files $M 1; off; btrfs-convert --no-progress $D1 >/dev/null; on; files $M/more 5; off
#: balanced
mk $D1; on; full; sub snapshot $M $M/s; btrfs balance start --full-balance $M >/dev/null; off
#: in the middle of a balance
mk -n 4K -m single $D1; on; full; sub snapshot $M $M/s; for n in 1 2 3 4 5; do files $M/s/$n $n; done
sync -f $M; btrfs balance start --full-balance $M >/dev/null & sleep 0.1; crash; wait; off
#: preallocated bytes in the middle of a balance
mk -n 4K -m single $D1; on; for n in 1 2 3 4; do fallocate -l 20M $M/$n; cp $N $M/n$n; done; sync -f $M
btrfs balance start --full-balance $M >/dev/null & for n in 1 2 3 4 5; do sleep 0.02; sync -f $M; done; crash; wait; off
#: a paused balance
mk $D1; on; full; for n in 1 2 3 4 5; do cp $N $M/$n; done; sync -f $M
btrfs balance start --bg --full-balance $M >/dev/null; btrfs balance pause $M 2>/dev/null || :; off
#: profiles changed by a balance
mk -m single $D1; on; full; btrfs balance start -f -mconvert=dup -dconvert=dup $M >/dev/null; off
#: from one device to RAID1
mk $D1; on; full; btrfs device add -f $D2 $M >/dev/null 2>&1
btrfs balance start -f -mconvert=raid1 -dconvert=raid1 $M >/dev/null; off
#: deleted files that are open
mk $D1; on; full; exec 7<$M/noise600000 8<$M/text70000; rm $M/noise600000 $M/text70000; sync -f $M
crash; exec 7<&- 8<&-; off
#: a log
mk $D1; on -o commit=300; full; sync -f $M; files $M/dir/late 5; sync $M/dir/late/noise5000 $M/dir/late/text70000
crash; off
#: a log of renamed and deleted files
mk $D1; on -o commit=300; full; mv $M/noise5000 $M/dir/new; rm $M/noise100; ln $M/text70000 $M/second
sync $M/dir/new $M/second $M/dir; crash; off
#: a log of a subvolume, replayed
mk $D1; on -o commit=300; sub create $M/a; files $M/a 3; sync -f $M; files $M/a/late 5; sync $M/a/late/noise5000
crash; off; cp $C/crash $F1; rm $C/crash; on; off
#: a subvolume that is being deleted
mk -n 4K $D1; on; sub create $M/a; for n in 1 2 3 4 5 6; do files $M/a/$n $n; done; sync -f $M
sub delete -c $M/a; crash; off
#: deleted subvolumes
mk $D1; on; for n in 1 2 3; do sub create $M/$n; files $M/$n $n; sub snapshot $M/$n $M/s$n; done; sync -f $M
sub delete $M/1 $M/s2; off; on; sync -f $M; off
#: snapshots of snapshots
mk $D1; on; sub create $M/0; files $M/0 3; for n in $(seq 20); do
sub snapshot $M/$((n - 1)) $M/$n; head -c $((n * 1000)) $N >$M/$n/text70000; rm $M/$n/dir/$n; done; off
#: nested subvolumes and a default
mk $D1; on; sub create $M/a; sub create $M/a/b; mkdir $M/a/b/d; sub create $M/a/b/d/c; files $M/a/b/d/c 3
sub snapshot -r $M/a $M/s; sub set-default $M/a/b; off
#: received subvolumes
mk $D1; on; sub create $M/a; files $M/a 3; sub snapshot -r $M/a $M/r; odd $M/a; rm $M/a/noise4096
sub snapshot -r $M/a $M/s; mkdir $M/to; btrfs -q send -f $T/1 $M/r; btrfs -q send -p $M/r -f $T/2 $M/s
btrfs -q receive -f $T/1 $M/to; btrfs -q receive -f $T/2 $M/to; off
#: encoded writes
mk $D1; on -o compress-force=zstd; sub create $M/a; files $M/a 3; sub snapshot -r $M/a $M/r; mkdir $M/to
btrfs -q send --proto 2 --compressed-data -f $T/1 $M/r; btrfs -q receive -f $T/1 $M/to; off
#: a swap file
mk $D1; on; btrfs filesystem mkswapfile -s 16M $M/swap >/dev/null; off
#: deep trees
mk -n 4K -m single $D1; on; files $M 1; for d in $(seq 12); do mkdir $M/many$d; (cd $M/many$d; seq -f "a-long-name-of-a-file-%06g" 400 | xargs touch); done; off
#: many names of one file
mk $D1; on; full; (cd $M/dir; for n in $(seq 900); do echo name-of-the-file-$n; done | xargs -I@ ln hard @); off
#: shared extents
mk $D1; on; files $M 1; for n in $(seq 700); do cp --reflink=always $M/noise70000 $M/dir/clone$n; done; off
#: extents of parts
mk $D1; on; cp $N $M/n; sync -f $M; for n in $(seq 200); do
head -c 4096 $N | dd of=$M/n bs=4096 seek=$((n * 3)) conv=notrunc status=none; done; sync -f $M; cp --reflink=always $M/n $M/o; off
#: defragmented
mk $D1; on; full; sub snapshot $M $M/s; btrfs filesystem defragment -r -czstd $M >/dev/null; off
#: discarded and scrubbed
mk $D1; on -o discard=async; full; rm $M/noise*; sync -f $M; fstrim $M; btrfs scrub start -B $M >/dev/null; off
#: full
mk -b 120M -m single $D1; on; n=0; while cp $N $M/$n 2>/dev/null; do n=$((n + 1)); done; off
#: a dump of metadata
usual; btrfs-image $D1 $T/dump; btrfs-image -r $T/dump $C/image
#: another fsid
usual; btrfstune -f -u $D1 >/dev/null
#: another metadata_uuid
usual; btrfstune -f -m $D1 >/dev/null
#: written by mkfs.btrfs
mkdir $T/s; files $T/s 1; mk --rootdir $T/s $D1
#: written and shrunk by mkfs.btrfs
mkdir $T/s; files $T/s 1; mk --rootdir $T/s --shrink $D1; cp --reflink=always $F1 $C/1
#: compressed by mkfs.btrfs
# needs newer
mkdir $T/s; files $T/s 1; mkdir $T/s/sub; files $T/s/sub 5; mk --rootdir $T/s --compress zstd:5 --subvol rw:sub $D1
#: defaults of a newer version
# needs newer
usual
#: empty
mk $D1
