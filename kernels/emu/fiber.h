/*
 * emu/fiber.h: stacks and switches, over Boost.Context.
 */
#ifndef KG_EMU_FIBER_H
#define KG_EMU_FIBER_H

#include <stddef.h>

#include <boost/context/detail/fcontext.hpp>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

struct kg_emu_fiber {
    boost::context::detail::fcontext_t context;
    char *mapping; /* NULL for the host thread's own stack */
    size_t mapping_bytes;
    char *top;
    const void *bottom; /* for the sanitizers */
    size_t bytes;
    void *fake_stack;
    void *tsan;
};

/* False if the memory for a stack cannot be had. `index` spreads stacks over cache sets. */
bool kg_emu_fiber_create(struct kg_emu_fiber *fiber, size_t index);
void kg_emu_fiber_destroy(struct kg_emu_fiber *fiber);
/* Makes a fiber start anew at kg_emu_fiber_main, whatever it was doing. */
void kg_emu_fiber_reset(struct kg_emu_fiber *fiber);
void kg_emu_fiber_main(void); /* block.cc; never returns */

/* Leaves `from`, which some later switch resumes, and goes on in `to`. */
static inline void kg_emu_fiber_switch(struct kg_emu_fiber *from, struct kg_emu_fiber *to)
{
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(&from->fake_stack, to->bottom, to->bytes);
#endif
#if defined(__SANITIZE_THREAD__)
    __tsan_switch_to_fiber(to->tsan, 0);
#endif
    boost::context::detail::transfer_t back =
        boost::context::detail::jump_fcontext(to->context, from);
    /* Somebody switched to `from`; the one who did tells where it left off. */
    struct kg_emu_fiber *came = static_cast<struct kg_emu_fiber *>(back.data);
    came->context = back.fctx;
#if defined(__SANITIZE_ADDRESS__)
    const void *bottom;
    size_t bytes;
    __sanitizer_finish_switch_fiber(from->fake_stack, &bottom, &bytes);
    if (came->mapping == NULL) {
        came->bottom = bottom;
        came->bytes = bytes;
    }
#endif
}

#endif
