"""How text tables are written: what is recognised, and what is refused."""

import csv

import pytest

from equipoise.app.tables.files import TableError
from equipoise.app.tables.text_format import TextFormat, open_records, skip_blank, text_format_of


@pytest.fixture
def table(tmp_path):
    """Makes a file of text or bytes."""

    def make(content, name="cell.csv"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return make


def records(path):
    with open_records(path) as reader:
        return list(reader)


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("name", ["cell.csv", "cell.tsv", "cell.txt"])
def test_the_delimiter_is_recognised_whatever_the_suffix(table, delimiter, name):
    path = table(f"a [V]{delimiter}b\n1.5{delimiter}2\n3{delimiter}x\n", name)
    assert text_format_of(path) == TextFormat("utf-8-sig", delimiter, ".")
    assert records(path) == [["a [V]", "b"], ["1.5", "2"], ["3", "x"]]


@pytest.mark.parametrize(
    ("text", "delimiter", "decimal"),
    [
        ("a;b\n1,5;2,5\n", ";", ","),
        ("a\tb\n1,5\t-2\n", "\t", ","),
        ("a|b\n1,5e3|2\n", "|", ","),
        ("Time;Current, A;Voltage, V\n0;1,5;3,2\n", ";", ","),  # a comma would give three even columns, too
        ('a;b\n"1,5";"2,5"\n', ";", ","),
        ("a;b\n1,5;2.5\n", ";", ","),  # both: what is not a comma will be refused as a number
        ("a\tb\n1,5\t2.5\n", "\t", "."),
        ("a;b;c\n1,5;2.5;3.5\n", ";", "."),
        ("day;b\n01.03;1,5\n12.03;2,5\n", ";", ","),
        ("day|b\n01.03|1,5\n12.03|2,5\n", "|", ","),
        ("day;b;c\n12.03;1,5;2,5\n13.03;2,5;3\n", ";", ","),
        ("a;b\n1;2\n", ";", "."),
        ("when;b\n3.5.2024;1,5\n", ";", ","),  # a date is no number
        ("a;b\n1,234,567;2\n", ";", "."),
        ("a,b\n1;5,2;5\n", ",", "."),
        ("note,b\nx;y,2\n", ",", "."),
        ('"a;b","c;d"\n1,2\n', ",", "."),
        ("a,b,c\n1,2,3\n1,2\n", ",", "."),  # ragged, but what else
        ("a;b;c\n", ";", "."),
        ("t;2.5;3.5\n0;0,5;0,7\n", ";", ","),  # names are no numbers
        ("a\n1\n", ",", "."),
        ("\n\n a;b\n1;2\n", ";", "."),
    ],
)
def test_delimiter_and_decimal_sign_are_recognised_together(table, text, delimiter, decimal):
    assert text_format_of(table(text)) == TextFormat("utf-8-sig", delimiter, decimal)


def test_a_decimal_comma_is_found_behind_any_number_of_whole_numbers(table):
    assert text_format_of(table("a;b\n" + "1;2\n" * 5000 + "1,5;2\n")).decimal == ","


def test_numbers_that_may_be_decimals_or_thousands_are_looked_at_to_the_end(table):
    assert text_format_of(table("a;b\n" + "1.926;2\n" * 300)).decimal == "."
    assert text_format_of(table("a;b\n" + "1.926;2\n" * 300 + "947;2\n" * 300)).decimal == ","


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize(
    "above",
    ["Plant A\n", "Plant A;;\n", "Plant A: hourly means\n\nmade by hand;;\n", "sep=;\n", '"Plant; part A"\n', ";;\n"],
)
def test_titles_above_the_header_are_passed_over(table, above, delimiter):
    text = f"{above}t;a;b\n1;2.5;3\n4;5.5;6\n".replace(";", delimiter)
    assert list(skip_blank(records(table(text)))) == [["t", "a", "b"], ["1", "2.5", "3"], ["4", "5.5", "6"]]


@pytest.mark.parametrize(
    ("text", "head"),
    [
        ("a;;\n1;2;3\n", ["a", "", ""]),  # numbers are no names
        ("a\n1\n2;3\n4;5\n", ["a"]),
        ("a\nAnn\nBob;jr\n", ["a"]),
        ("a\nAnn\nBob;jr\nEve\n", ["a"]),
        ("a\n" * 30 + "b;c\n1;2\n", ["a"]),
        (",a,\n0,1.5,\n1,2.5,\n", ["", "a", ""]),
        (",value\na,NA\nb,NA\nc0,0.0\nc1,0.5\n", ["", "value"]),  # an index of names
        (",value\na,x\nb,y\nc0,0.0\n", ["", "value"]),
        ("Plant A\n,value\na,x\nb,y\nc0,0.0\n", ["", "value"]),
        (",value,\na,NA,x\nb,NA,y\nc0,0.0,z\n", ["", "value", ""]),
    ],
)
def test_what_may_be_the_header_is_no_title(table, text, head):
    assert records(table(text))[0] == head


@pytest.mark.parametrize("delimiter", [",", ";"])
def test_names_and_values_above_the_header_are_refused(table, delimiter):
    text = "Device:;XY;;;\nOperator:;Ann;;;\nt;a;b;c;d\n1;2;3;4;5\n".replace(";", delimiter)
    with pytest.raises(
        TableError, match=r"name the columns, but got 2 names, 'Device:' and 'XY', for 5 columns\. Delete"
    ):
        text_format_of(table(text))


def test_a_changed_file_is_looked_at_again(table):
    assert text_format_of(table("a,b\n1,2\n")).delimiter == ","
    assert text_format_of(table("a;b;c\n1;2;3\n")).delimiter == ";"


@pytest.mark.parametrize(
    "content",
    [
        "Größe [°C],b\n1,ä\n".encode(),
        "Größe [°C],b\n1,ä\n".encode("utf-8-sig"),
        "Größe [°C],b\n1,ä\n".encode("latin-1"),
        "Größe [°C],b\n1,ä\n".encode("utf-16"),
        "Größe [°C],b\r\n1,ä\r\n".encode(),
        "Größe [°C],b\r1,ä\r".encode(),
        "Größe [°C],b\n1,ä".encode(),
    ],
    ids=["utf-8", "utf-8 with mark", "latin-1", "utf-16", "Windows", "old Mac", "no last line end"],
)
def test_encodings_and_line_ends_make_no_difference(table, content):
    assert records(table(content)) == [["Größe [°C]", "b"], ["1", "ä"]]


def test_a_single_line_in_the_encoding_of_windows_does_not_spoil_those_in_utf_8(table):
    path = table("a,b\n1,Ω\n".encode() + "2,10 €\n".encode("cp1252"))
    assert records(path) == [["a", "b"], ["1", "Ω"], ["2", "10 €"]]


def test_quoted_cells_are_read_as_the_standard_library_writes_them(table, tmp_path):
    rows = [["a", 'b "c"'], ["x,y", "two\nlines"], ['"', "\r\n"], ["", " padded "]]
    with open(tmp_path / "t.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)
    assert records(tmp_path / "t.csv") == rows


@pytest.mark.parametrize("content", ["", "\n\n  \n", b"\xef\xbb\xbf", ";;\n;;\n", '"",""\n'])
def test_an_empty_file_is_refused_by_name(table, content):
    with pytest.raises(TableError, match=r"'cell\.csv' must begin with a line of column names, but got an empty file"):
        text_format_of(table(content))


def test_binary_data_are_refused(table):
    with pytest.raises(TableError, match=r"'cell\.csv' must be a text table, but got binary data"):
        text_format_of(table(b"PK\x03\x04\x00\x00\x08\x00"))


@pytest.mark.parametrize("text", ['a,b\n1,2\n"x"y,3\n', 'a,b\n1,2\n3,"x\n'])
def test_wrong_quotes_are_refused_with_their_line(table, text):
    with pytest.raises(TableError, match=r"Quotes must enclose whole cells, but got line 3 of 'cell\.csv'"):
        records(table(text))


def test_a_quote_that_is_never_closed_is_not_read_to_the_end_of_the_world(table):
    with pytest.raises(TableError, match=r"131,072 characters at most, but got more up to line \d+ of 'cell\.csv'"):
        records(table('a,b\n"1,2\n' + "1,2\n" * 50_000))


def test_a_cell_that_is_too_long_is_told_with_its_line(table):
    with pytest.raises(TableError, match=r"131,072 characters at most, but got more up to line 2 of 'cell\.csv'"):
        records(table("a;b\n" + "1" * 200_000 + ";2\n"))


@pytest.mark.parametrize("name", ["cell.csv.gz", "cell.csv.bz2", "cell.csv.xz", "cell.csv.zip"])
def test_a_file_that_is_not_packed_as_it_says_is_named(table, name):
    with pytest.raises(TableError, match=rf"'{name}' must be readable to its end, but got: .*Is it damaged"):
        text_format_of(table("a,b\n1,2\n", name))
