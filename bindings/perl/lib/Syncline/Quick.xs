/* The calls that are made most, without a detour through Perl: one key or one whole table, and an array as PDL made it.
 *
 * Each of these functions looks whether a call is that simple, and makes it. Everything else, and every failure, is left to the function in Perl that it
 * was made for: options, lists, slices, rows, words. A call this way touches a few dozen cache lines; in Perl it is some hundred, which have to come
 * back from memory after each megabyte that was copied.
 *
 * An object is known by magic that its class put on it: the handle, and where the keys are. Handles are looked up by the library, so a stale one is
 * an error and no crash. Functions of the library come as addresses, from where Syncline::FFI found it.
 */
#include "EXTERN.h"
#include "perl.h"
#include "XSUB.h"
#include "pdl.h"
#include "pdlcore.h"
#include "syncline.h"

static Core *PDL;
/* Those of the interpreter that has loaded this; in threads no array is of these classes, and Perl makes their calls. */
static HV *pdl_class, *ndarray_class;

static syncline_status (*table_get)(syncline_table *, void *, size_t);
static syncline_status (*table_add)(syncline_table *, const void *, size_t, const syncline_add_options *, int);
static syncline_status (*store_push)(syncline_kvstore *, const syncline_kv_key *, const syncline_kv_array *, size_t);
static syncline_status (*store_pull)(syncline_kvstore *, const syncline_kv_key *, const syncline_kv_array *, size_t, int32_t);

/* Most dimensions that are looked at here. */
#define MOST 6

/* What a table knows of itself. */
typedef struct {
    syncline_table *handle;
    int32_t datatype;
    uint32_t axes;
    PDL_Indx dims[2]; /* in PDL's order */
} known_table;

/* What a store knows of a key, as Syncline::KVStore::Arrays packs it; the dims in PDL's order and the name, with its zero, follow. */
typedef struct {
    int64_t number;
    int32_t dtype, datatype;
    uint32_t axes, named;
} known_key;

static MGVTBL table_mark, store_mark;

static MAGIC *mark_of(pTHX_ SV *self, MGVTBL *mark)
{
    return SvROK(self) && SvTYPE(SvRV(self)) == SVt_PVHV ? mg_findext(SvRV(self), PERL_MAGIC_ext, mark) : NULL;
}

/* The array behind a value, if it is as it was made: memory of its own, nothing to catch up with, and if it is to be written nobody to be told. */
static pdl *plain(pTHX_ SV *given, int written)
{
    SV *inner;
    pdl *it;
    PDL_DECL_CHILDLOOP(it)
    if (!SvROK(given)) return NULL;
    inner = SvRV(given);
    if (!SvOBJECT(inner) || SvSTASH(inner) != pdl_class || !SvIOK(inner)) return NULL;
    it = INT2PTR(pdl *, SvIVX(inner));
    if (!it || it->magicno != PDL_MAGICNO || it->state != PDL_ALLOCATED || it->trans_parent || it->magic) return NULL;
    if (written) {
        PDL_START_CHILDLOOP(it)
            return NULL;
        PDL_END_CHILDLOOP(it)
    }
    return it;
}

/* What is inside of an AI::MXNet::NDArray; anything else stays as it is and is found wanting. */
static SV *inside(pTHX_ SV *given)
{
    SV **found;
    if (!SvROK(given) || !SvOBJECT(SvRV(given)) || SvSTASH(SvRV(given)) != ndarray_class || SvTYPE(SvRV(given)) != SVt_PVHV) return &PL_sv_undef;
    found = hv_fetchs((HV *)SvRV(given), "pdl", 0);
    return found ? *found : &PL_sv_undef;
}

/* Gives the array memory as PDL would, but does not clear it, which of a large one takes half as long as the copy that follows. Says whether it did: the
 * few bytes that PDL keeps inside the array, and a PDL whose insides nobody has looked at here, are left to PDL. */
static int given_memory(pTHX_ pdl *it)
{
#if PDL_CORE_VERSION == 20
    STRLEN size = (STRLEN)it->nvals * PDL->howbig(it->datatype);
    if (size > sizeof it->value && !it->datasv) {
        SV *bytes = newSV(size);
        SvPOK_only(bytes);
        SvCUR_set(bytes, size);
        it->datasv = bytes;
        it->data = SvPVX(bytes);
        it->nbytes = size;
        it->state |= PDL_ALLOCATED;
        return 1;
    }
#endif
    return 0;
}

/* From so many bytes on it is asked whether there is memory: where there is none the interpreter ends the program. */
#define MUCH ((double)(64 << 20))

static int can_be_had(double bytes)
{
    void *had = bytes < 4e18 ? (malloc)((size_t)bytes) : NULL;
    (free)(had);
    return had != NULL;
}

/* A new array, whose numbers are about to be written; none where that is for Perl to decide. */
static pdl *fresh(pTHX_ int datatype, uint32_t axes, const PDL_Indx *dims, SV *into)
{
    pdl *it;
    PDL_Indx copied[MOST];
    double bytes = (double)PDL->howbig(datatype);
    uint32_t i;
    for (i = 0; i < axes; i++) {
        copied[i] = dims[i];
        bytes *= (double)dims[i];
    }
    if (bytes >= MUCH && !can_be_had(bytes)) return NULL;
    it = PDL->pdlnew();
    if (!it) return NULL;
    it->datatype = datatype;
    PDL->SetSV_PDL(into, it);
    PDL->barf_if_error(PDL->setdims(it, copied, axes));
    if (!given_memory(aTHX_ it)) PDL->barf_if_error(PDL->make_physical(it));
    return it;
}

/* Lets Perl make the call: the very arguments, and whatever it returns. By name, since each thread has a function of that name. */
static void in_perl(pTHX_ CV *cv, I32 ax)
{
    PUSHMARK(PL_stack_base + ax - 1);
    call_pv((const char *)CvXSUBANY(cv).any_ptr, GIMME_V);
}

static void failed(pTHX_ syncline_status status)
{
    dSP;
    PUSHMARK(SP);
    mXPUSHi(status);
    PUTBACK;
    call_pv("Syncline::FFI::failed", G_DISCARD);
}

static int is_out(pTHX_ SV *word) { return SvPOK(word) && SvCUR(word) == 3 && memEQ(SvPVX(word), "out", 3); }

/* $table->add($delta) */
static XSPROTO(quick_table_add)
{
    dXSARGS;
    MAGIC *known = items == 2 ? mark_of(aTHX_ ST(0), &table_mark) : NULL;
    known_table *table = known ? (known_table *)known->mg_ptr : NULL;
    pdl *delta = table ? plain(aTHX_ ST(1), 0) : NULL;
    if (delta && delta->datatype == table->datatype) {
        syncline_status status = table_add(table->handle, delta->data, delta->nvals, NULL, 0);
        if (status) failed(aTHX_ status);
        XSRETURN_EMPTY;
    }
    in_perl(aTHX_ cv, ax);
}

/* $table->get(out => $pdl), $table->get */
static XSPROTO(quick_table_get)
{
    dXSARGS;
    MAGIC *known = items == 1 || items == 3 ? mark_of(aTHX_ ST(0), &table_mark) : NULL;
    known_table *table = known ? (known_table *)known->mg_ptr : NULL;
    if (table) {
        SV *result = items == 1 ? sv_newmortal() : is_out(aTHX_ ST(1)) ? ST(2) : &PL_sv_undef;
        pdl *out = items == 1 ? fresh(aTHX_ table->datatype, table->axes, table->dims, result) : plain(aTHX_ result, 1);
        if (out && out->datatype == table->datatype) {
            syncline_status status = table_get(table->handle, out->data, out->nvals);
            if (status) failed(aTHX_ status);
            ST(0) = result;
            XSRETURN(1);
        }
    }
    in_perl(aTHX_ cv, ax);
}

/* What a store knows of the key, if it knows it. */
static known_key *key_of(pTHX_ MAGIC *store, SV *key)
{
    HE *found = SvOK(key) && !SvROK(key) ? hv_fetch_ent((HV *)store->mg_obj, key, 0, 0) : NULL;
    return found && SvPOK(HeVAL(found)) && SvCUR(HeVAL(found)) >= sizeof(known_key) ? (known_key *)SvPVX(HeVAL(found)) : NULL;
}

static const PDL_Indx *dims_of(const known_key *key) { return (const PDL_Indx *)(key + 1); }

/* Whether the array has the key's own type and shape. */
static int fits(const known_key *key, const pdl *it)
{
    return it->datatype == key->datatype && it->ndims == key->axes && memcmp(it->dims, dims_of(key), key->axes * sizeof(PDL_Indx)) == 0;
}

/* Both as the library wants them; `dims` has room for MOST. */
static void described(const known_key *key, const pdl *it, size_t *dims, syncline_kv_key *name, syncline_kv_array *array)
{
    uint32_t i;
    for (i = 0; i < key->axes; i++) dims[i] = it->dims[key->axes - 1 - i];
    name->name = key->named ? (const char *)(dims_of(key) + key->axes) : NULL;
    name->number = key->number;
    array->dtype = key->dtype;
    array->axes = key->axes;
    array->dims = dims;
    array->data = it->data;
    array->rows = NULL;
}

/* $kv->push($key, $array); whoever is in MXNet's costume has arrays in costume. */
static void push(pTHX_ CV *cv, I32 ax, I32 items, int costumed)
{
    MAGIC *store = items == 3 ? mark_of(aTHX_ ST(0), &store_mark) : NULL;
    known_key *key = store ? key_of(aTHX_ store, ST(1)) : NULL;
    pdl *it = key ? plain(aTHX_ costumed ? inside(aTHX_ ST(2)) : ST(2), 0) : NULL;
    if (it && fits(key, it)) {
        size_t dims[MOST];
        syncline_kv_key name;
        syncline_kv_array array;
        syncline_status status;
        described(key, it, dims, &name, &array);
        status = store_push((syncline_kvstore *)store->mg_ptr, &name, &array, 1);
        if (status) {
            dSP;
            PUSHMARK(SP);
            XPUSHs(ST(0));
            mXPUSHi(status);
            PUTBACK;
            call_method("check_push", G_DISCARD);
        }
        XSRETURN_EMPTY;
    }
    in_perl(aTHX_ cv, ax);
}

/* $kv->pull($key, out => $array), $kv->pull($key) */
static void pull(pTHX_ CV *cv, I32 ax, I32 items, int costumed)
{
    int anew = items == 2 && !costumed;
    MAGIC *store = items == 4 || anew ? mark_of(aTHX_ ST(0), &store_mark) : NULL;
    known_key *key = store ? key_of(aTHX_ store, ST(1)) : NULL;
    if (key) {
        SV *result = anew ? sv_newmortal() : is_out(aTHX_ ST(2)) ? ST(3) : &PL_sv_undef;
        pdl *it = anew ? fresh(aTHX_ key->datatype, key->axes, dims_of(key), result) : plain(aTHX_ costumed ? inside(aTHX_ result) : result, 1);
        if (it && fits(key, it)) {
            size_t dims[MOST];
            syncline_kv_key name;
            syncline_kv_array array;
            syncline_status status;
            described(key, it, dims, &name, &array);
            status = store_pull((syncline_kvstore *)store->mg_ptr, &name, &array, 1, 1);
            if (status) failed(aTHX_ status);
            if (costumed) XSRETURN_EMPTY;
            ST(0) = result;
            XSRETURN(1);
        }
    }
    in_perl(aTHX_ cv, ax);
}

static XSPROTO(quick_push) { dXSARGS; push(aTHX_ cv, ax, items, 0); }
static XSPROTO(quick_pull) { dXSARGS; pull(aTHX_ cv, ax, items, 0); }
static XSPROTO(quick_costumed_push) { dXSARGS; push(aTHX_ cv, ax, items, 1); }
static XSPROTO(quick_costumed_pull) { dXSARGS; pull(aTHX_ cv, ax, items, 1); }

MODULE = Syncline::Quick  PACKAGE = Syncline::Quick

PROTOTYPES: DISABLE

BOOT:
    PDL = INT2PTR(Core *, SvIV(get_sv("PDL::SHARE", GV_ADD)));
    if (!PDL || PDL->Version != PDL_CORE_VERSION) croak("Syncline::Quick was compiled for another PDL");
    pdl_class = gv_stashpvs("PDL", GV_ADD);
    ndarray_class = gv_stashpvs("AI::MXNet::NDArray", GV_ADD);

void
library(UV add, UV get, UV push, UV pull)
  CODE:
    table_add = INT2PTR(void *, add);
    table_get = INT2PTR(void *, get);
    store_push = INT2PTR(void *, push);
    store_pull = INT2PTR(void *, pull);

void
mark_table(SV *self, UV handle, int datatype, ...)
  CODE:
    known_table table = {INT2PTR(syncline_table *, handle), datatype, items - 3, {0, 0}};
    I32 i;
    if (items < 4 || items > 5 || !SvROK(self)) XSRETURN_EMPTY;
    for (i = 3; i < items; i++) table.dims[i - 3] = SvIV(ST(i));
    sv_magicext(SvRV(self), NULL, PERL_MAGIC_ext, &table_mark, (const char *)&table, sizeof table);

void
mark_store(SV *self, UV handle, SV *keys)
  CODE:
    /* A length of 0 keeps the pointer as it is; the keys live as long as the object. */
    if (SvROK(self) && SvROK(keys) && SvTYPE(SvRV(keys)) == SVt_PVHV)
        sv_magicext(SvRV(self), SvRV(keys), PERL_MAGIC_ext, &store_mark, INT2PTR(const char *, handle), 0);

SV *
made(const char *name, const char *otherwise)
  CODE:
    XSUBADDR_t function = strEQ(name, "table_add") ? quick_table_add : strEQ(name, "table_get") ? quick_table_get
        : strEQ(name, "push") ? quick_push : strEQ(name, "pull") ? quick_pull
        : strEQ(name, "costumed_push") ? quick_costumed_push : strEQ(name, "costumed_pull") ? quick_costumed_pull : NULL;
    CV *cv;
    if (!function) croak("Syncline::Quick has no %s", name);
    cv = newXS(NULL, function, __FILE__);
    CvXSUBANY(cv).any_ptr = savesharedpv(otherwise); /* as long as the process: threads have copies of the function, and this */
    RETVAL = newRV_noinc((SV *)cv);
  OUTPUT:
    RETVAL
