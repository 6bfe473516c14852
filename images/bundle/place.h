/* SPDX-License-Identifier: Apache-2.0
 *
 * place: what the launcher, the programs of the bundle and their link agree on.
 */
#ifndef HVD_IMAGES_BUNDLE_PLACE_H
#define HVD_IMAGES_BUNDLE_PLACE_H

/* Where the bundle is in a container: its programs name their loader by its whole path.
 * images/bundle.mk and operator/reconcile/newpod.c say it too. */
#define BUNDLE_PLACE "/hvd"

/* The image's own, as every program for glibc names it. */
#if defined(__x86_64__)
#define BUNDLE_LOADER "/lib64/ld-linux-x86-64.so.2"
#elif defined(__aarch64__)
#define BUNDLE_LOADER "/lib/ld-linux-aarch64.so.1"
#else
#error "the bundle has not been made for this architecture yet"
#endif

/* Variables that the image's loader is to see, not ours; kept under another name meanwhile. */
#define BUNDLE_KEPT_PREFIX "HVD_KEPT_"
#define BUNDLE_KEPT_NAMES  "LD_LIBRARY_PATH", "LD_PRELOAD", "LD_AUDIT"

/* Folders of a bundle. */
#define BUNDLE_FOLDERS "bin", "lib", "private", "python", "share"

#endif
