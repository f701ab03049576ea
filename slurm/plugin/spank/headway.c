/* Headway's options for sbatch, salloc and srun: a SPANK plugin for Slurm 22.05 and later.
 *
 *     --headway-preemptible    the job can be stopped and started again later
 *     --headway-min-gpus=N     smallest total number of GPUs with which the job can run
 *     --headway-max-gpus=N     largest total number of GPUs that the job can use
 *     --headway-profile=off    the job is not to be measured
 *
 * Slurm itself carries the options of a submission to slurmctld, in the SPANK environment of the job. There job_submit.lua
 * copies them into the comment of the job, and every other part of Headway reads the comment only. This file declares the
 * options, refuses invalid values before the job is submitted, and sets HEADWAY_PROFILE, which TaskProlog reads.
 *
 * Fail-open: plugstack.conf lists the plugin as optional, and a submission fails only when an option of Headway is invalid.
 *
 * `headway-setup spank` builds and installs the plugin. A release of Slurm loads only plugins that were built for it.
 */

#define _POSIX_C_SOURCE 200809L /* setenv */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <slurm/spank.h>

/* Digest of the source: `headway-setup spank` looks for it in the installed plugin. */
#ifndef HEADWAY_SOURCE
#define HEADWAY_SOURCE "unknown"
#endif

SPANK_PLUGIN(headway, 1)

extern const char headway_spank_source[];
const char headway_spank_source[] = "headway-spank-source:" HEADWAY_SOURCE;

/* Slurm's names for the variable of an option: on its way to the nodes, and with the second prefix in the environment of a job. */
#define OPTION_VARIABLE "_SLURM_SPANK_OPTION_headway_"
#define INHERITED_PREFIX "SLURM_SPANK_"
#define PROFILE_VARIABLE "HEADWAY_PROFILE"

#define MOST_DIGITS 6 /* of a number of GPUs: larger than any cluster */

enum option { PREEMPTIBLE, MIN_GPUS, MAX_GPUS, PROFILE };

/* Values of the options so far; 0 when not given. When an option is repeated the last value counts, as with Slurm's own options:
 * sbatch reads #SBATCH lines first, then the command line. */
static long min_gpus = 0;
static long max_gpus = 0;
static int profile_off = 0;

static int handle_option(int option, const char *argument, int remote);

static struct spank_option options[] = {
    {"headway-preemptible", NULL,
     "the job can be stopped and started again: it saves its state on SIGUSR1 and requeues itself, or uses headway_job.checkpoint", 0, PREEMPTIBLE,
     handle_option},
    {"headway-min-gpus", "N", "smallest total number of GPUs with which the job can run", 1, MIN_GPUS, handle_option},
    {"headway-max-gpus", "N", "largest total number of GPUs that the job can use", 1, MAX_GPUS, handle_option},
    {"headway-profile", "off", "do not measure how the job trains", 1, PROFILE, handle_option},
};

#define NUM_OPTIONS (sizeof(options) / sizeof(options[0]))

/* Return the number of GPUs in a text; 0 when it is not a valid number. */
static long gpus_in(const char *text)
{
    size_t digits = strspn(text, "0123456789");

    if (digits == 0 || digits > MOST_DIGITS || text[digits] != '\0')
        return 0;
    return strtol(text, NULL, 10);
}

/* End the command that submits, after a message. No callback returns an error instead: what Slurm does with the error of an
 * optional plugin differs between its releases. */
static void refuse_submission(void)
{
    fflush(NULL);
    _exit(EXIT_FAILURE); /* not exit(): that would unload this plugin while Slurm is calling it */
}

static void set_gpus(int option, const char *text)
{
    long gpus = gpus_in(text);

    if (gpus == 0) {
        slurm_error("headway: --%s=%.40s is not a number of GPUs: give a whole number from 1 to 999999, such as --%s=%d",
                    options[option].name, text, options[option].name, option == MIN_GPUS ? 2 : 8);
        refuse_submission();
    }
    if (option == MIN_GPUS)
        min_gpus = gpus;
    else
        max_gpus = gpus;
}

static void set_profile(const char *text)
{
    if (strcmp(text, "off") != 0) {
        slurm_error("headway: --headway-profile=%.40s: the only valid value is off; without the option the job is measured", text);
        refuse_submission();
    }
    profile_off = 1;
}

/* Slurm calls this for every option that is given: where a job is submitted, and (remote) as root on its nodes. On the nodes no
 * value is refused, and nothing that users wrote goes into logs. */
static int handle_option(int option, const char *argument, int remote)
{
    const char *text = argument != NULL ? argument : "";

    if (remote) {
        if (option == PROFILE && strcmp(text, "off") == 0)
            profile_off = 1;
    } else if (option == PROFILE) {
        set_profile(text);
    } else if (option != PREEMPTIBLE) {
        set_gpus(option, text);
    }
    return 0;
}

static int submitting(void)
{
    spank_context_t context = spank_context();

    return context == S_CTX_LOCAL || context == S_CTX_ALLOCATOR;
}

/* Remove the variables by which Slurm would pass the options of a job on to jobs that are submitted from inside it: options are
 * only for the job to which they were given. */
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

/* Slurm calls this after the last option, so only now the final pair of numbers is known. */
int slurm_spank_init_post_opt(spank_t spank, int argc, char *argv[])
{
    (void)argc;
    (void)argv;
    if (submitting() && min_gpus != 0 && max_gpus != 0 && min_gpus > max_gpus) {
        slurm_error("headway: --headway-min-gpus=%ld is more than --headway-max-gpus=%ld: give a smaller minimum or a larger maximum",
                    min_gpus, max_gpus);
        refuse_submission();
    }
    if (profile_off && submitting())
        setenv(PROFILE_VARIABLE, "off", 1);
    else if (profile_off)
        spank_setenv(spank, PROFILE_VARIABLE, "off", 1); /* here too: --export may have left it behind */
    return 0;
}
