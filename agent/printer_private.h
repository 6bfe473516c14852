/* SPDX-License-Identifier: Apache-2.0
 *
 * printer_private: what printer.c and printer_files.c share.
 */
#ifndef HVD_AGENT_PRINTER_PRIVATE_H
#define HVD_AGENT_PRINTER_PRIVATE_H

#include "agent/printer.h"

/* Makes the directory of the files and the thread that writes them. */
int printer_open_dir(struct printer *p, struct err *err);

int printer_open_files(struct printer *p, int rank, struct err *err);

/* Writes bytes to a file unchanged; drops them if its disk has stopped. */
void printer_put_file(struct printer *p, const struct frame *frame);

/* At the end, writes in each file how much is missing. */
void printer_finish_files(struct printer *p);

/* Sets file_error and file_name to the first file that failed or, at the end, still waits for its
 * disk. */
void printer_watch_files(struct printer *p);

size_t printer_pending_files(const struct printer *p);

enum outlet_state printer_files_state(const struct printer *p);

#endif
