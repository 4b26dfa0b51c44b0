/* Catalog: gates and workloads in words, for list and show.  Systems describe themselves. */
#ifndef MOEPERF_HARNESS_CLI_CATALOG_H
#define MOEPERF_HARNESS_CLI_CATALOG_H

struct cli_entry {
    const char *name;
    const char *title;  /* one line */
    const char *source; /* paper and section; "" if there is none */
    const char *models; /* some sentences */
    const char *use;    /* what to write into a job */
};

/* Tables end with a row whose name is NULL. */
extern const struct cli_entry cli_gates[], cli_workloads[];

const struct cli_entry *cli_entry_find(const struct cli_entry table[], const char *name);

#endif
