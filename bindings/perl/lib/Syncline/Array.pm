package Syncline::Array;

# PDL arrays as the C interface wants them: by pointer where PDL has one.
#
# A PDL lists its fastest dimension first, the rest of the world last: a PDL of (3, 2) is an array of shape [2, 3], and its memory is the same.
# Slices are copied on the way in, and assigned back on the way out. PDL keeps up to 32 bytes inside of its own structure; there `get_dataref`
# is a copy, and `upd_data` afterwards carries it back.

use strict;
use warnings;

use FFI::Platypus::Memory ();
use PDL::Core ();
use PDL::Lite ();
use Scalar::Util qw(blessed looks_like_number);
use Syncline::Error ();
use Syncline::FFI ();

our $VERSION = '0.1.0';

# PDL's types and the dtypes they are; `indx` is a 64-bit number here too.
our (@DTYPE_OF, %TYPE_OF, @SIZE_OF);
BEGIN {
    my @pairs = ([byte => 'uint8'], [short => 'int16'], [long => 'int32'], [longlong => 'int64'], [indx => 'int64'], [float => 'float32'], [double => 'float64']);
    for my $pair (@pairs) {
        my ($name, $dtype) = @$pair;
        my $type = PDL::Type->new($name);
        $DTYPE_OF[$type->enum] = $Syncline::FFI::DTYPE{$dtype};
        $TYPE_OF{$dtype} = $type unless $name eq 'indx';
        $SIZE_OF[$Syncline::FFI::DTYPE{$dtype}] = PDL::Core::howbig($type->enum);
    }
}

# type_of(DTYPE): the PDL type of a dtype.
sub type_of {
    my ($dtype) = @_;
    my $type = defined $dtype && !ref $dtype ? $TYPE_OF{$dtype} : undef;
    return $type if defined $type;
    my $known = join ', ', sort keys %TYPE_OF;
    Syncline::Error::argument('dtype ' . shown($dtype) . " is none that PDL has\nhint: there are $known");
}

sub dtype_of { my ($pdl) = @_; return $Syncline::FFI::DTYPES[$DTYPE_OF[$pdl->get_datatype] // unknown_type($pdl)] }

sub unknown_type { my ($pdl) = @_; Syncline::Error::argument('an array of type ' . $pdl->type . ' cannot be shared; convert it to float, double, long, longlong, short or byte') }

# The shape as the rest of the world has it.
sub shape_of { my ($pdl) = @_; return [reverse $pdl->dims] }

# whole(PDL or what becomes one): an array with numbers in it.
sub whole {
    my ($given, $what) = @_;
    Syncline::Error::argument("$what is undefined, and must be an array") unless defined $given;
    if (blessed $given && $given->isa('PDL')) {
        Syncline::Error::argument("$what is a null PDL, which has no numbers") if $given->isnull;
        return $given;
    }
    if (ref $given eq 'ARRAY' || !ref $given) {
        Syncline::Error::argument("$what is " . shown($given) . ', and must be an array') unless ref $given || looks_like_number($given);
        check_numbers($given, $what);
        my $pdl = eval { PDL->new($given) };
        return $pdl if defined $pdl;
    }
    Syncline::Error::argument("$what is " . shown($given) . ', and must be a PDL or a list of numbers');
}

sub check_numbers {
    my ($given, $what, $depth) = @_;
    # PDL's own way into a nested list takes time without end.
    Syncline::Error::argument("$what is a list of lists, too many levels of them") if ($depth //= 0) > 16;
    for my $each (ref $given eq 'ARRAY' ? @$given : $given) {
        if (ref $each eq 'ARRAY') { check_numbers($each, $what, $depth + 1) }
        elsif (blessed $each && $each->isa('PDL')) { }
        elsif (!looks_like_number($each)) { Syncline::Error::argument("$what holds " . shown($each) . ', and must hold numbers') }
    }
}

# held_as(PDL, TYPE): the same numbers of a table's type. Whole ones hold neither fractions nor what is too large for them, and would lose it without a word.
sub held_as {
    my ($pdl, $type, $what) = @_;
    return $pdl if $pdl->type->enum == $type->enum;
    my $held = $pdl->convert($type);
    return $held if $pdl->isempty || $type->ppsym =~ /\A[FD]\z/;
    my $lost = ($held->convert($pdl->type) != $pdl)->flat;
    return $held unless $lost->any;
    my $place = $lost->maximum_ind->sclr;
    my $number = $pdl->flat->at($place);
    Syncline::Error::argument("$what: number $place is $number, and the table has $Syncline::FFI::DTYPES[$DTYPE_OF[$type->enum]]");
}

# to_write(PDL): refuses what cannot be written into.
sub to_write {
    my ($given, $what) = @_;
    Syncline::Error::argument("$what is " . shown($given) . ', and must be a PDL to write into') unless blessed $given && $given->isa('PDL');
    Syncline::Error::argument("$what is a null PDL, which has no room") if $given->isnull;
    return $given;
}

# lend(PDL): dtype number, shape packed, and a reference to the scalar with its bytes.
sub lend {
    my ($pdl) = @_;
    my @dims = reverse $pdl->dims;
    return ($DTYPE_OF[$pdl->get_datatype] // unknown_type($pdl), scalar @dims, pack('Q*', @dims), $pdl->get_dataref);
}

# describe(PDL, KEEP): the structure syncline_kv_array; what it points to is pushed to KEEP.
sub describe {
    my ($pdl, $keep) = @_;
    my ($dtype, $axes, $dims, $data) = lend($pdl);
    push @$keep, \$dims, $data;
    return pack 'lLppQ', $dtype, $axes, $dims, $$data, 0;
}

# filling(PDL): what to write into so that the PDL has it in the end, and what to do afterwards.
sub filling {
    my ($pdl) = @_;
    # A slice has no memory of its own: a copy of it has, and is assigned back. So is a copy of an array that slices were taken of: only an assignment
    # tells them that their numbers are new.
    return ($pdl, 0) unless defined $pdl->trans_parent || has_slices($pdl);
    return ($pdl->copy, 1);
}

# Whether other arrays look at the numbers of this one.
sub has_slices { my ($pdl) = @_; my @looking = $pdl->trans_children; return scalar @looking }

sub filled {
    my ($pdl, $written, $copied) = @_;
    $written->upd_data;
    $pdl .= $written if $copied;
    return $pdl;
}

# fresh(DTYPE, SHAPE): a new array of zeros.
sub fresh {
    my ($dtype, $shape) = @_;
    my $type = type_of($dtype);
    check_room($shape, $SIZE_OF[$Syncline::FFI::DTYPE{$dtype}]);
    return PDL->zeroes($type, reverse @$shape);
}

# Where memory is short Perl ends the program, whatever catches errors around it: who asks for much is refused here.
use constant MUCH => 64 << 20;

sub check_room {
    my ($shape, $bytes) = @_;
    $bytes *= $_ for @$shape;
    return if $bytes < MUCH;
    my $had = $bytes < 2**62 ? FFI::Platypus::Memory::malloc($bytes) : undef;
    return FFI::Platypus::Memory::free($had) if defined $had;
    Syncline::Error::argument('an array of ' . join('x', @$shape) . " numbers, $bytes bytes, does not fit into memory");
}

# from_bytes(DTYPE, SHAPE, BYTES): a new array with these bytes.
sub from_bytes {
    my ($dtype, $shape, $bytes) = @_;
    my $pdl = fresh($dtype, $shape);
    return $pdl unless length $bytes;
    substr(${ $pdl->get_dataref }, 0, length $bytes, $bytes);
    $pdl->upd_data;
    return $pdl;
}

# ids(WHAT): 64-bit numbers of any shape, flat.
sub ids {
    my ($given, $what) = @_;
    return PDL->zeroes($TYPE_OF{int64}, 0) if ref $given eq 'ARRAY' && !@$given;
    my $pdl = whole($given, $what)->flat;
    return $pdl if $pdl->type->enum == $TYPE_OF{int64}->enum;
    Syncline::Error::argument("$what must be whole numbers") if !$pdl->isempty && $pdl->type->real && ($pdl != $pdl->rint)->any;
    return $pdl->convert($TYPE_OF{int64});
}

# truth(VALUE): 1 or 0. Arrays have no truth of their own, and are something.
sub truth { my ($value) = @_; return ref $value || $value ? 1 : 0 }

# shown(VALUE): a few words about something wrong.
sub shown {
    my ($value) = @_;
    return 'undef' unless defined $value;
    return 'a ' . ref $value if ref $value;
    my $text = "$value";
    $text = substr($text, 0, 40) . '...' if length $text > 43;
    $text =~ s/[^\x20-\x7e]/?/g;
    return looks_like_number($value) ? $text : qq("$text");
}

1;

__END__

=head1 NAME

Syncline::Array - PDL arrays as Syncline's C interface wants them

=head1 DESCRIPTION

Not for programs. Arrays are lent by pointer and never copied, except slices (and anything else that PDL computes from another array), and those of up to 32 bytes, which PDL
keeps where no pointer leads. A PDL of dimensions C<(3, 2)> is an array of shape C<[2, 3]>: the memory is the same, only the order of the names differs.

=cut
