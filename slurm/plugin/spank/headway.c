/* Headway's options for sbatch, salloc and srun: a SPANK plugin for Slurm 22.05 and later.
 *
 *     --headway-preemptible    the job can come back, so it may be taken off its nodes and started again
 *     --headway-min-gpus=N     it can go on with as few GPUs as this, in all
 *     --headway-max-gpus=N     it has a use for as many GPUs as this, in all
 *     --headway-profile=off    it is not to be measured
 *
 * Slurm itself carries a submission's options to slurmctld, in the job's SPANK environment. There job_submit.lua makes words
 * of the job's comment of them, which is all that anything else reads. What is left for this file: to declare the options,
 * to refuse values that mean nothing before anything is submitted, and to set HEADWAY_PROFILE, which TaskProlog reads.
 *
 * Fail-open: plugstack.conf calls it optional, and it fails for nobody but those who gave an option of ours a wrong value.
 *
 * `headway-setup spank` builds and installs it. Slurm loads plugins that were built for its own release only.
 */

#define _POSIX_C_SOURCE 200809L /* setenv */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <slurm/spank.h>

/* Which source this was built from: `headway-setup spank` looks for it in what is installed. */
#ifndef HEADWAY_SOURCE
#define HEADWAY_SOURCE "unknown"
#endif

SPANK_PLUGIN(headway, 1)

extern const char headway_spank_source[];
const char headway_spank_source[] = "headway-spank-source:" HEADWAY_SOURCE;

/* Slurm's names for an option on its way: the first to the nodes, with the second prefix to what a job submits itself. */
#define OPTION_VARIABLE "_SLURM_SPANK_OPTION_headway_"
#define INHERITED_PREFIX "SLURM_SPANK_"
#define PROFILE_VARIABLE "HEADWAY_PROFILE"

#define MOST_DIGITS 6 /* of a number of GPUs: more than any cluster has */

enum wish { PREEMPTIBLE, MIN_GPUS, MAX_GPUS, PROFILE };

/* What has been asked for so far; 0: nothing. Of an option that is repeated the last counts, as with Slurm's own: sbatch
 * reads #SBATCH lines first, the command line later. */
static long min_gpus = 0;
static long max_gpus = 0;
static int profile_off = 0;

static int hear(int wish, const char *argument, int remote);

static struct spank_option options[] = {
    {"headway-preemptible", NULL,
     "the job can come back: it saves its state on SIGUSR1 and requeues itself, or uses headway_job.checkpoint", 0, PREEMPTIBLE,
     hear},
    {"headway-min-gpus", "N", "fewest GPUs, in all, that the job can go on with", 1, MIN_GPUS, hear},
    {"headway-max-gpus", "N", "most GPUs, in all, that the job has a use for", 1, MAX_GPUS, hear},
    {"headway-profile", "off", "do not measure how the job trains", 1, PROFILE, hear},
};

#define NUM_OPTIONS (sizeof(options) / sizeof(options[0]))

/* A number of GPUs; 0: it is none. */
static long gpus_in(const char *text)
{
    size_t digits = strspn(text, "0123456789");

    if (digits == 0 || digits > MOST_DIGITS || text[digits] != '\0')
        return 0;
    return strtol(text, NULL, 10);
}

static int hear_gpus(int wish, const char *text)
{
    long gpus = gpus_in(text);

    if (gpus == 0) {
        slurm_error("headway: --%s=%.40s is no number of GPUs: give a whole number from 1 to 999999, such as --%s=%d",
                    options[wish].name, text, options[wish].name, wish == MIN_GPUS ? 2 : 8);
        return -1;
    }
    if (wish == MIN_GPUS)
        min_gpus = gpus;
    else
        max_gpus = gpus;
    return 0;
}

static int hear_profile(const char *text)
{
    if (strcmp(text, "off") != 0) {
        slurm_error("headway: --headway-profile=%.40s: the only value is off; without the option the job is measured", text);
        return -1;
    }
    profile_off = 1;
    return 0;
}

/* Slurm calls this for every option that is used: where a job is submitted, and (remote) by root on its nodes. There nobody is
 * refused anything any more, and what users wrote does not go into logs. */
static int hear(int wish, const char *argument, int remote)
{
    const char *text = argument != NULL ? argument : "";

    if (remote) {
        if (wish == PROFILE && strcmp(text, "off") == 0)
            profile_off = 1;
        return 0;
    }
    if (wish == PROFILE)
        return hear_profile(text);
    return wish == PREEMPTIBLE ? 0 : hear_gpus(wish, text);
}

static int submitting(void)
{
    spank_context_t context = spank_context();

    return context == S_CTX_LOCAL || context == S_CTX_ALLOCATOR;
}

/* Options are for the job that they were given to. Slurm would pass them on, by these variables, to jobs submitted from inside
 * it; but that this one can come back says nothing of those. */
static void forget_inherited(const char *option)
{
    char name[128];
    char *letter;

    snprintf(name, sizeof(name), INHERITED_PREFIX OPTION_VARIABLE "%s", option);
    for (letter = name; *letter != '\0'; letter++)
        if (*letter == '-')
            *letter = '_';
    unsetenv(name);
    unsetenv(name + strlen(INHERITED_PREFIX));
}

int slurm_spank_init(spank_t spank, int argc, char *argv[])
{
    size_t i;

    (void)argc;
    (void)argv;
    if (!submitting() && spank_context() != S_CTX_REMOTE)
        return 0;
    for (i = 0; i < NUM_OPTIONS; i++) {
        if (submitting())
            forget_inherited(options[i].name);
        spank_option_register(spank, &options[i]);
    }
    return 0;
}

/* Called when all options have been heard: only now does it show which pair of numbers counts. Slurm ignores what an optional
 * plugin returns from here, so a submission that makes no sense is ended on the spot. */
int slurm_spank_init_post_opt(spank_t spank, int argc, char *argv[])
{
    (void)argc;
    (void)argv;
    if (submitting() && min_gpus != 0 && max_gpus != 0 && min_gpus > max_gpus) {
        slurm_error("headway: --headway-min-gpus=%ld is more than --headway-max-gpus=%ld: give a smaller minimum or a larger maximum",
                    min_gpus, max_gpus);
        fflush(NULL);
        _exit(EXIT_FAILURE); /* not exit(): that would unload this plugin while Slurm is calling it */
    }
    if (profile_off && submitting())
        setenv(PROFILE_VARIABLE, "off", 1);
    else if (profile_off)
        spank_setenv(spank, PROFILE_VARIABLE, "off", 1); /* here too: --export may have left it behind */
    return 0;
}
