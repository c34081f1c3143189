/*
 * emu/fiber.cc: the memory of fibers and their first entry.
 */
#include "fiber.h"

#include <sys/mman.h>
#include <unistd.h>

using boost::context::detail::transfer_t;

/* The kernels' frames are small; instrumented frames are not. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) ||                     \
    !defined(__OPTIMIZE__)
static const size_t stack_bytes = 256 * 1024;
#else
static const size_t stack_bytes = 64 * 1024;
#endif

static void entry(transfer_t came)
{
    struct kg_emu_fiber *from = static_cast<struct kg_emu_fiber *>(came.data);
    from->context = came.fctx;
#if defined(__SANITIZE_ADDRESS__)
    const void *bottom;
    size_t bytes;
    __sanitizer_finish_switch_fiber(NULL, &bottom, &bytes);
    if (from->mapping == NULL) {
        from->bottom = bottom;
        from->bytes = bytes;
    }
#endif
    kg_emu_fiber_main();
}

void kg_emu_fiber_reset(struct kg_emu_fiber *fiber)
{
#if defined(__SANITIZE_ADDRESS__)
    __asan_unpoison_memory_region(fiber->bottom, fiber->bytes);
#endif
    fiber->fake_stack = NULL;
    fiber->context =
        boost::context::detail::make_fcontext(fiber->top, fiber->bytes, entry);
}

bool kg_emu_fiber_create(struct kg_emu_fiber *fiber, size_t index)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    *fiber = {};
    fiber->mapping_bytes = stack_bytes + 2 * page;
    void *mapping = mmap(NULL, fiber->mapping_bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping == MAP_FAILED)
        return false;
    fiber->mapping = static_cast<char *>(mapping);
    /* An overflow shall crash. Without the guard page (too many mappings) work goes on. */
    (void)mprotect(mapping, page, PROT_NONE);
    /* Tops a multiple of the page apart would all fall into the same few cache sets. */
    size_t colour = index * 320 % page / 64 * 64;
    fiber->top = fiber->mapping + fiber->mapping_bytes - colour;
    fiber->bottom = fiber->mapping + page;
    fiber->bytes = (size_t)(fiber->top - fiber->mapping) - page;
#if defined(__SANITIZE_THREAD__)
    fiber->tsan = __tsan_create_fiber(0);
#endif
    kg_emu_fiber_reset(fiber);
    return true;
}

void kg_emu_fiber_destroy(struct kg_emu_fiber *fiber)
{
    if (fiber->mapping == NULL)
        return;
#if defined(__SANITIZE_THREAD__)
    __tsan_destroy_fiber(fiber->tsan);
#endif
#if defined(__SANITIZE_ADDRESS__)
    __asan_unpoison_memory_region(fiber->mapping, fiber->mapping_bytes);
#endif
    munmap(fiber->mapping, fiber->mapping_bytes);
    fiber->mapping = NULL;
}
