/* Annotations of two shared objects and an executable: each holds its own copy of NVTX. */
#pragma once

void first_object_ranges(int count);
void second_object_ranges(int count);
