/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * A character device that takes bytes, gives them to a codec, and keeps what it finds.
 *
 * Its results are in the log, and in /sys/module.
 */
#include <linux/device.h>
#include <linux/fs.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/version.h>

/* What takes the bytes of a device. */
struct taker {
	/* Begins to take bytes: those of another file. */
	int (*begin)(void);
	/* Takes the first `length` bytes of `input`. */
	int (*take)(size_t length);
	/* Ends the input: complete if `is_good`, otherwise cut off. Stores the digest of the output in `digest`. */
	int (*finish)(bool is_good);
};

static int major;
module_param(major, int, 0444);
MODULE_PARM_DESC(major, "the device's major number, for mknod; 0 for one that is free");
static unsigned long long uncompressed_len;
module_param(uncompressed_len, ullong, 0444);
MODULE_PARM_DESC(uncompressed_len, "bytes of the last file's content (result)");
static unsigned long long compressed_len;
module_param(compressed_len, ullong, 0444);
MODULE_PARM_DESC(compressed_len, "bytes of the last file, compressed (result)");
static int error;
module_param(error, int, 0444);
MODULE_PARM_DESC(error, "what the last file came to: 0 or a negative errno (result)");
static char digest[17];
module_param_string(digest, digest, sizeof(digest), 0444);
MODULE_PARM_DESC(digest, "hash of the last file's output (result)");

/* Bytes that are taken at once. */
static unsigned int piece = 4096;
static u8 *input;
static unsigned long opened;
/* Threads, and processes with the same open file, write at the same time. */
static DEFINE_MUTEX(taking);
static struct class *device_class;
static const struct taker *taker;

static int device_open(struct inode *inode, struct file *file)
{
	if (test_and_set_bit_lock(0, &opened))
		return -EBUSY;
	uncompressed_len = 0;
	compressed_len = 0;
	digest[0] = 0;
	error = taker->begin();
	if (error)
		clear_bit_unlock(0, &opened);
	return error;
}

static ssize_t device_write(struct file *file, const char __user *bytes, size_t size, loff_t *at)
{
	size_t done = 0;
	ssize_t result;

	if (mutex_lock_interruptible(&taking))
		return -ERESTARTSYS;
	/* After an error only another file will do. */
	result = error;
	while (!result && done < size) {
		size_t length = min_t(size_t, size - done, piece);

		if (signal_pending(current)) {
			result = -ERESTARTSYS;
		} else if (copy_from_user(input, bytes + done, length)) {
			result = -EFAULT;
		} else {
			error = taker->take(length);
			result = error;
			if (!error)
				done += length;
			cond_resched();
		}
	}
	mutex_unlock(&taking);
	return done ?: result;
}

static int device_release(struct inode *inode, struct file *file)
{
	int result;

	mutex_lock(&taking);
	result = taker->finish(!error);
	if (!error)
		error = result;
	pr_info("uncompressed_len: %llu, compressed_len: %llu, digest: %s, error: %d\n", uncompressed_len, compressed_len,
		digest, error);
	mutex_unlock(&taking);
	clear_bit_unlock(0, &opened);
	return 0;
}

static const struct file_operations device_operations = {
	.owner = THIS_MODULE,
	.open = device_open,
	.write = device_write,
	.release = device_release,
};

/* Makes the device, whose bytes go to `of`. */
static int device_start(const struct taker *of)
{
	struct device *device;
	int result;

	taker = of;
	input = kmalloc(piece, GFP_KERNEL);
	if (!input)
		return -ENOMEM;
	/* 0 for the number that was asked for, or the one that was free. */
	result = register_chrdev(major, KBUILD_MODNAME, &device_operations);
	if (result < 0)
		goto free;
	major = major ?: result;
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 4, 0)
	device_class = class_create(KBUILD_MODNAME);
#else
	device_class = class_create(THIS_MODULE, KBUILD_MODNAME);
#endif
	result = PTR_ERR_OR_ZERO(device_class);
	if (result)
		goto unregister;
	device = device_create(device_class, NULL, MKDEV(major, 0), NULL, KBUILD_MODNAME);
	result = PTR_ERR_OR_ZERO(device);
	if (result)
		goto destroy;
	pr_info("/dev/" KBUILD_MODNAME ": mknod " KBUILD_MODNAME " c %d 0\n", major);
	return 0;

destroy:
	class_destroy(device_class);
unregister:
	unregister_chrdev(major, KBUILD_MODNAME);
free:
	kfree(input);
	return result;
}

static void device_end(void)
{
	device_destroy(device_class, MKDEV(major, 0));
	class_destroy(device_class);
	unregister_chrdev(major, KBUILD_MODNAME);
	kfree(input);
}
