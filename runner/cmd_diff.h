/* runner/cmd_diff.h: kgate diff, report, merge, results, prune. argv[0] is the command's
   name; each returns the exit status. */
#ifndef KG_RUNNER_CMD_DIFF_H
#define KG_RUNNER_CMD_DIFF_H

/* 0 nothing worse, 1 worse, 2 cannot compare or wrong usage. */
int kg_cmd_diff(int argc, char **argv);
/* 0, or 2. */
int kg_cmd_report(int argc, char **argv);
int kg_cmd_merge(int argc, char **argv);
int kg_cmd_results(int argc, char **argv);
int kg_cmd_prune(int argc, char **argv);

#endif
