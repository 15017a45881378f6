/* Read before each file of C that mypyc writes: what is called when an exception is raised is called seldom.

   Compilers then take the way to such a call for the one that is not gone, and put its code apart from what runs for
   each packet.  It is half of all code, so that the other half fits into the caches of a processor twice as well. */

#include <Python.h>

__attribute__((cold)) void CPy_AddTraceback(const char *, const char *, int, PyObject *);
__attribute__((cold)) void CPy_AttributeError(const char *, const char *, const char *, const char *, int, PyObject *);
__attribute__((cold)) void CPy_Raise(PyObject *);
__attribute__((cold)) void CPy_TypeError(const char *, PyObject *);
__attribute__((cold)) void CPy_TypeErrorTraceback(const char *, const char *, int, PyObject *, const char *, PyObject *);
__attribute__((cold)) void CPyError_OutOfMemory(void);
