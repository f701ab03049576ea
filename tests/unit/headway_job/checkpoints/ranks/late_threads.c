/* Lets gloo's threads hold each operation for LATE_US after it is completed, as on a node whose CPUs are all busy. Loaded first
 * (LD_PRELOAD). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

#define EXECUTE \
    _ZN4c10d16ProcessGroupGloo9AsyncWork7executeERKN3c1013intrusive_ptrIS1_NS2_6detail34intrusive_target_default_null_typeIS1_EEEE
#define TEXT(name) #name
#define NAME(name) TEXT(name)

void EXECUTE(void *work)
{
    void *torch = dlopen("libtorch_cpu.so", RTLD_NOW | RTLD_NOLOAD);
    void (*execute)(void *) = (void (*)(void *))dlsym(torch, NAME(EXECUTE));
    execute(work);
    write(2, "late\n", 5);
    usleep(atoi(getenv("LATE_US")));
}
