/* A libnvidia-ml.so.1 that says what the environment tells it to.

   FAKE_DEVICES    number of GPUs; default 1
   FAKE_MIG        places for MIG instances on each GPU, "used" of "places", as 2/3; default no MIG
   FAKE_PROCESSES  lines of HANDLE KIND PID BYTES; KIND is c (compute) or g (graphics), BYTES -1 is "not available";
                   HANDLE is 0, 1 ... for a GPU and 10, 11 ... 20 ... for the instances of GPU 0, 1 ...
   FAKE_ERROR      returned when processes are asked for
   FAKE_INIT       returned when the library is initialized

   With -DOLD the third version of the functions that list processes is missing, with -DANCIENT the second too. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7 };

typedef unsigned long long u64;
typedef struct { unsigned pid; u64 bytes; unsigned gpu_instance, compute_instance; } Process;
typedef struct { unsigned gpu, memory; } Utilization;
typedef struct { u64 total, free, used; } Memory;

static long number(const char *name, long otherwise) {
    const char *text = getenv(name);
    return text ? atol(text) : otherwise;
}

static long handle_of(void *handle) { return (long)handle - 1; }

static int has_mig(void) { return getenv("FAKE_MIG") != NULL; }

int nvmlInitWithFlags(unsigned flags) { return (int)number("FAKE_INIT", SUCCESS); }
int nvmlShutdown(void) { return SUCCESS; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = (unsigned)number("FAKE_DEVICES", 1); return SUCCESS; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) { *handle = (void *)(index + 1L); return SUCCESS; }
int nvmlSystemGetDriverVersion(char *text, unsigned size) { snprintf(text, size, "999.1"); return SUCCESS; }
int nvmlDeviceGetName(void *handle, char *text, unsigned size) { snprintf(text, size, "Fake GPU"); return SUCCESS; }

int nvmlDeviceGetUUID(void *handle, char *text, unsigned size) {
    snprintf(text, size, "GPU-%ld", handle_of(handle));
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo(void *handle, Memory *memory) {
    memory->total = 80ULL << 30;
    memory->free = memory->used = 40ULL << 30;
    return SUCCESS;
}

int nvmlDeviceGetUtilizationRates(void *handle, Utilization *rates) {
    if (has_mig()) return NOT_SUPPORTED;
    rates->gpu = 30 + 40 * (unsigned)handle_of(handle);
    rates->memory = 0;
    return SUCCESS;
}

int nvmlDeviceGetMigMode(void *handle, unsigned *current, unsigned *pending) {
    *current = *pending = (unsigned)has_mig();
    return SUCCESS;
}

int nvmlDeviceGetMaxMigDeviceCount(void *handle, unsigned *count) {
    unsigned used = 0;
    sscanf(getenv("FAKE_MIG"), "%u/%u", &used, count);
    return SUCCESS;
}

int nvmlDeviceGetMigDeviceHandleByIndex(void *handle, unsigned index, void **instance) {
    unsigned used = 0, places = 0;
    sscanf(getenv("FAKE_MIG"), "%u/%u", &used, &places);
    if (index >= used) return NOT_FOUND;
    *instance = (void *)(10 * (handle_of(handle) + 1) + index + 1);
    return SUCCESS;
}

static int list(void *handle, char kind, unsigned *count, Process *found) {
    int error = (int)number("FAKE_ERROR", SUCCESS);
    unsigned room = *count, seen = 0;
    const char *line = getenv("FAKE_PROCESSES");
    if (error) return error;
    while (line && *line) {
        long on; char of; unsigned pid; long long bytes;
        if (sscanf(line, "%ld %c %u %lld", &on, &of, &pid, &bytes) == 4 && on == handle_of(handle) && of == kind) {
            if (seen < room && found) found[seen] = (Process){pid, (u64)bytes, 0, 0};
            seen++;
        }
        line = strchr(line, '\n');
        if (line) line++;
    }
    *count = seen;
    return seen > room ? INSUFFICIENT_SIZE : SUCCESS;
}

#ifndef ANCIENT
int nvmlDeviceGetComputeRunningProcesses_v2(void *h, unsigned *n, Process *p) { return list(h, 'c', n, p); }
int nvmlDeviceGetGraphicsRunningProcesses_v2(void *h, unsigned *n, Process *p) { return list(h, 'g', n, p); }
#ifndef OLD
int nvmlDeviceGetComputeRunningProcesses_v3(void *h, unsigned *n, Process *p) { return list(h, 'c', n, p); }
int nvmlDeviceGetGraphicsRunningProcesses_v3(void *h, unsigned *n, Process *p) { return list(h, 'g', n, p); }
#endif
#endif
