/* The manifest: what files there are, and the kernel log at boot.
 *
 * Each line has five columns, separated by tabs and ended by a newline:
 *
 *     path  d  mode  -     -        a directory; those above a path are implied
 *     path  f  mode  rule  content  a file; the rule with its words, see rules.h
 *     path  l  -     -     target   a symbolic link
 *     path  r  usec  prio  text     a record of the kernel log at boot, in order, whatever the
 *                                   path; usec may be "-" for now
 *
 * Paths are relative to the root of the mount. In the path, rule and content, \t, \n, \\ and
 * \xNN stand for bytes.
 */
#ifndef KERNELFS_MANIFEST_H
#define KERNELFS_MANIFEST_H

#include <stdbool.h>

/* Read the manifest into the tree. Where there is one already, what has a line equal to the
 * one before keeps its current value. false: the complaint is on stderr, nothing changed. */
bool manifest_load(const char *path, bool boot);

#endif
