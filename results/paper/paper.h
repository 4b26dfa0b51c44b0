/* Published figures, as the JSON texts of this folder. */
#ifndef MOEPERF_RESULTS_PAPER_PAPER_H
#define MOEPERF_RESULTS_PAPER_PAPER_H

extern const char mp_paper_symi[]; /* symi.json: convergence and drops under SYMI */

#endif
