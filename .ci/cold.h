/* Read before each file of C that mypyc writes: what is called when an exception is raised is called seldom.

   Compilers then take the way to such a call for the one that is not taken, and put its code apart from what runs for
   each packet.  It is a quarter of all code, so that the rest fits better into the caches of a processor. */
#if __has_include(<CPy.h>) /* not where a module is but handed on to what is compiled together */
#include <Python.h>
#include <CPy.h>

#define COLD(name) extern __typeof__(name) name __attribute__((cold))

COLD(CPy_AddTraceback);
COLD(CPy_AttributeError);
COLD(CPy_Raise);
COLD(CPy_TypeError);
COLD(CPy_TypeErrorTraceback);
COLD(CPyError_OutOfMemory);
#endif
