/* SPDX-License-Identifier: Apache-2.0
 *
 * place: names that the launcher, the programs of the bundle and their link commands share.
 */
#ifndef HVD_IMAGES_BUNDLE_PLACE_H
#define HVD_IMAGES_BUNDLE_PLACE_H

/* The path of the bundle in a container. It is fixed because the programs contain the absolute path
 * of their loader. The same as BUNDLE_AT in images/images.mk and TEMPLATE_PLACE in
 * operator/objects/template.h. */
#define BUNDLE_PLACE "/hvd"

/* The dynamic loader of the image, not of the bundle: the path in PT_INTERP of every glibc
 * program. */
#if defined(__x86_64__)
#define BUNDLE_LOADER "/lib64/ld-linux-x86-64.so.2"
#elif defined(__aarch64__)
#define BUNDLE_LOADER "/lib/ld-linux-aarch64.so.1"
#else
#error "the bundle does not support this architecture"
#endif

/* Variables for the image's loader, not for ours. Between launcher and program they have this
 * prefix. */
#define BUNDLE_SAVED_PREFIX "HVD_SAVED_"
#define BUNDLE_SAVED_NAMES  "LD_LIBRARY_PATH", "LD_PRELOAD", "LD_AUDIT"

/* Folders of a bundle. */
#define BUNDLE_FOLDERS "bin", "lib", "private", "python", "share"

#endif
