/* SPDX-License-Identifier: MIT */
/* It uses types of a header that other headers of glibc include. */
#include <sys/types.h>
#include_next <ext2fs/ext2fs.h>
